"""Words that ask for the same thing in almost every prompt: a small set of our own."""

from index.guards.stem import stem

_GROUPS = """
learn study | buy purchase | begin start commence | end finish | fix repair mend | choose select
pick | help assist assistance | big large huge | small little tiny | quick fast rapid speedy
quickly | job work career occupation employment | movie film | car automobile | phone telephone
smartphone cellphone | picture photo photograph image | doctor physician | kid child | house home
| make create produce | build construct | get obtain acquire gain receive | earn make | need
require | use utilize utilise | show display | delete remove erase | change modify alter | update
upgrade | improve enhance better | increase raise boost | reduce decrease lower lessen | explain
describe | important significant crucial essential | difference distinction differ differentiate
distinguish | meaning definition mean define | benefit advantage pro | drawback disadvantage con
downside | symptom sign | illness disease sickness | cure treat treatment remedy | happen occur |
country nation | city town | job position | company firm business corporation | money cash | price
cost | salary pay wage | cheap inexpensive affordable | expensive costly | wealthy rich |
beautiful pretty | smart intelligent clever | stupid dumb | angry mad | sad unhappy | happy glad |
easy simple | hard difficult tough | strange weird odd | famous popular well-known | correct right
| wrong incorrect | best top greatest | good great | bad terrible awful | buy get | answer reply
respond response | question query | problem issue trouble | error mistake fault | method way
technique approach | tip advice suggestion recommend recommendation suggest | exercise workout |
overcome defeat conquer | stop quit cease | avoid prevent | allow permit let | forbid prohibit ban
| travel trip journey | visit see | speak talk | tell say | think believe | opinion view | guess |
website site webpage | app application | program software | laptop notebook | password passcode |
login signin sign-in | register signup | email mail e-mail | message text | internet web | teach
instruct | teacher instructor tutor | student pupil | university college | class course lesson |
exam test examination | grade mark score | book novel | author writer | food dish meal | cook
prepare | recipe | bake | sick ill | hurt pain ache | weight | fat | skinny thin slim | girl |
wife spouse | dad father | mom mother mum | baby infant | marry marriage wedding | automobile
vehicle | plane airplane aircraft flight | gun weapon firearm | war conflict | invent invention |
discover find | earth world planet globe | space universe | sea ocean | boat ship | road street |
shop store | client customer | boss manager | employee worker staff | hire recruit employ | fire
dismiss | resign quit | rent lease | bag luggage baggage | garbage trash rubbish waste | holiday
vacation | ticket | fee charge | refund | cancel | order | deliver ship delivery shipping | return
| broken damaged | lost missing | often frequently | sometimes occasionally | always | usually
normally generally typically | almost nearly | about approximately around roughly | enough
sufficient | whole entire | start launch | keep maintain retain | hold | look appear seem | watch
see | big major | connect link | send transmit | calculate compute | convert transform turn | sort
order arrange | list enumerate name | function method | loop | array | string | parse | delete
drop
"""


def _concepts() -> dict[str, str]:
    """Stem to the first stem of its first group: a word stands for one concept only."""
    table: dict[str, str] = {}
    for group in _GROUPS.split("|"):
        stems = [stem(word) for word in group.split()]
        for each in stems:
            table.setdefault(each, table.get(stems[0], stems[0]))
    return table


_CONCEPTS = _concepts()


def concept(word_stem: str) -> str:
    """The stem that stands for all synonyms of this one."""
    return _CONCEPTS.get(word_stem, word_stem)
