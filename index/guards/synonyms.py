"""Words that ask for the same thing in almost every prompt: a small set of our own."""

from index.guards.stem import stem

_GROUPS = """
learn study | buy purchase | begin start commence launch | end finish | fix repair mend | choose
select pick | help assist assistance | big large huge major | small little tiny | quick fast rapid
speedy quickly | job work career occupation employment position | movie film | car automobile
vehicle | phone telephone smartphone cellphone | picture photo photograph image | doctor physician
| kid child | house home | make create produce | build construct | get obtain acquire gain receive
| need require | use utilize utilise | show display | delete remove erase drop | change modify
alter | update upgrade | improve enhance better | increase raise boost | reduce decrease lower
lessen | explain describe | important significant crucial essential | difference distinction
differ differentiate distinguish | meaning definition mean define | benefit advantage pro |
drawback disadvantage con downside | symptom sign | illness disease sickness | cure treat
treatment remedy | happen occur | country nation | city town | company firm business corporation |
money cash | price cost | salary pay wage | cheap inexpensive affordable | wealthy rich |
beautiful pretty | smart intelligent clever | stupid dumb | angry mad | sad unhappy | happy glad |
easy simple | hard difficult tough | strange weird odd | famous popular well-known | correct right
| wrong incorrect | best top greatest | good great | bad terrible awful | answer reply respond
response | question query | problem issue trouble | error mistake fault | method way technique
approach | tip advice suggestion recommend recommendation suggest | exercise workout | overcome
defeat conquer | stop quit cease | avoid prevent | allow permit let | forbid prohibit ban | travel
trip journey | visit see | speak talk | tell say | think believe | opinion view | website site
webpage | app application | program software | laptop notebook | password passcode | login signin
sign-in | register signup | email mail e-mail | message text | internet web | teach instruct |
teacher instructor tutor | student pupil | university college | class course lesson | exam test
examination | grade mark score | book novel | author writer | food dish meal | cook prepare | sick
ill | hurt pain ache | skinny thin slim | wife spouse | dad father | mom mother mum | baby infant
| marry marriage wedding | plane airplane aircraft flight | gun weapon firearm | war conflict |
invent invention | discover find | earth world planet globe | space universe | sea ocean | boat
ship | road street | shop store | client customer | boss manager | employee worker staff | hire
recruit employ | rent lease | bag luggage baggage | garbage trash rubbish waste | holiday vacation
| fee charge | deliver delivery | broken damaged | lost missing | often frequently | sometimes
occasionally | usually normally generally typically | almost nearly | about approximately around
roughly | enough sufficient | whole entire | keep maintain retain | look appear seem | connect
link | send transmit | calculate compute | convert transform turn | sort arrange | list enumerate
name
"""


def _concepts() -> dict[str, str]:
    """Each stem to the first of its group."""
    groups = ([stem(word) for word in group.split()] for group in _GROUPS.split("|"))
    return {each: stems[0] for stems in groups for each in stems}


_CONCEPTS = _concepts()


def concept(word_stem: str) -> str:
    """The stem that stands for all synonyms of this one."""
    return _CONCEPTS.get(word_stem, word_stem)
