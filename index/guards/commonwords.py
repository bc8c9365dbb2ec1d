"""What says that a word which is a name, too (`index.guards.namesakes`), is meant as a word.

Nothing else tells a name from the word where somebody leaves its capital letter out: the common
word shows itself by what it does in its sentence, or by what the sentence is about.
"""

from collections.abc import Iterator
from itertools import pairwise

from index.guards.phrases import FUNCTION_WORDS
from index.guards.text import Text
from index.guards.wordset import wordset

_DETERMINERS = wordset("a an the these those some any no another per")
_PRAISE = wordset("good best bad big small great strong fine")
_OWNERS = wordset("my his her its our their your")
_OWNED = wordset("python windows word excel outlook safari slack zoom discord steam")
"""They are somebody's as programs, too: `my windows is slow`."""
_COMPOUNDED = wordset("polish turkey china lima cologne excel zoom discord")
"""They stand before a noun as names do: `a polish restaurant`."""
_ADJECTIVES = wordset("swift basic nice")
_DEGREES = wordset("be very so really too how look looks smell smells more most")
_VERBS = wordset("march polish access zoom target rust dart excel go lent scratch shell steam")
_ACTORS = wordset(
    "i you we they he she it who not can could should will would may must might please"
)
_BEFORE_TO = wordset(
    "how want need learn learned begin able try trying have like love going used time way order"
    " is when where what easy hard"
)
"""`how to march`; but `how do I get to target`."""
_BEHIND = {
    "excel": wordset("at"),
    "access": wordset("to"),
    "polish": wordset("up off"),
    "march": wordset("on against through into with"),
    "zoom": wordset("in out"),
    "scratch": wordset("off"),
}
_SAYING_NOTHING = wordset("what who is are was does do did mean means it or not and for so")
_SELDOM_WORDS = wordset("python perl excel zoom china lima")
"""Asked after with nothing else said, these are names."""
_PLACES = wordset("turkey china lima cologne nice bath reading")

_ABOUT = {
    "python": wordset(
        "feed pet snake snakes zoo bite bites bitten dangerous handle tame cage skin eat wild"
        " heavy venom poisonous animal reptile bred breed species swallow hiss shed"
    ),
    "ruby": wordset("gem gemstone ring necklace jewel jewelry diamond sapphire wear"),
    "rust": wordset(
        "remove removing removal protect prevent metal iron steel car bike stain paint"
        " corrosion knife knives pan chain dangerous scrub vinegar tetanus"
    ),
    "swift": wordset("bird fly nest reply response answer action decision justice"),
    "scratch": wordset("cat dog itch skin paint lottery paper"),
    "dart": wordset("throw board pub frog"),
    "go": wordset("far away home"),
    "shell": wordset("egg crab turtle snail nut sea beach oyster crack peel"),
    "windows": wordset(
        "house home glass wash curtains door frost condensation clean open winter summer sun rain"
    ),
    "word": wordset("another longest vowels rude"),
    "excel": wordset("students career"),
    "office": wordset("doctor rent furniture chair"),
    "outlook": wordset("life future positive economic"),
    "edge": wordset("cliff knife sharp"),
    "safari": wordset("africa kenya lion"),
    "opera": wordset("singer sing italian music theatre tickets sung hear"),
    "teams": wordset("sports football basketball league players win lose"),
    "slack": wordset("rope cut"),
    "zoom": wordset("lens camera"),
    "discord": wordset("marital harmony cause causes between"),
    "steam": wordset(
        "iron water train vegetables engine clothes boil rice cook hot hotter temperature"
    ),
    "apple": wordset(
        "big red green eat fruit health healthy juice pie tree trees peel vitamin calories bake"
        " cider seeds sauce sweet dog baby snack"
    ),
    "oracle": wordset("delphi greek ancient prophecy god"),
    "target": wordset("hit shoot arrow audience goal thieves practice"),
    "gap": wordset("between tooth wage bridge"),
    "subway": wordset("train tracks ride metro tunnel"),
    "turkey": wordset(
        "bird wild hunt stuffing stuffed sandwich healthy carve protein chicken beef fat thaw"
        " raw defrost pound"
    ),
    "china": wordset(
        "dish cup season clean piece pieces bone antique pattern cabinet shop break buy"
    ),
    "cologne": wordset("perfume wear smell spray scent bottle skin last"),
    "bath": wordset("hot water shower baby bubble tub"),
    "reading": wordset(
        "book skills faster enjoy start stop improve love writing glasses comprehension quit"
    ),
    "mercury": wordset("poisoning spill liquid toxic dental tooth vaccines element catch"),
    "polish": wordset(
        "nail wax shine floor wood shoe silver car furniture stone made sold buy crack dry chip"
    ),
    "job": wordset("get find lost quit apply new hate"),
    "lent": wordset("borrow friend"),
    "march": wordset("protest band soldiers army troops wedding step war"),
    "august": wordset("company institution body presence"),
}
"""What is told in a sentence about the common word, in any form."""


def is_common(word: str, text: Text) -> bool:
    """Whether a word of the text stands there as a word, once at least, as its sentence tells."""
    places = (place for place, other in enumerate(text.words) if other == word)
    return any(_stands_so(place, text) for place in places) or any(
        _is_told(word, text.words[first:end], text.stems[first:end])
        for first, end in _sentences(text)
    )


def _stands_so(place: int, text: Text) -> bool:
    return _is_noun(place, text) or _is_adjective(place, text) or _is_verb(place, text)


def _is_told(word: str, words: tuple[str, ...], stems: tuple[str, ...]) -> bool:
    if word not in words:
        return False
    told = _ABOUT.get(word, frozenset())
    return _is_alone(word, words) or not told.isdisjoint((*words, *stems))


def _sentences(text: Text) -> Iterator[tuple[int, int]]:
    """Where each begins and ends."""
    starts = [place for place, start in enumerate(text.starts) if start]
    return pairwise((0, *starts, len(text.words)))


def _is_noun(place: int, text: Text) -> bool:
    word, before, behind = _around(place, text)
    if word in _COMPOUNDED and behind and behind not in FUNCTION_WORDS:
        return False
    if before in _PRAISE:
        before = text.words[place - 2] if place > 1 else ""
    return before in _DETERMINERS or (before in _OWNERS and word not in _OWNED)


def _is_adjective(place: int, text: Text) -> bool:
    word, before, behind = _around(place, text)
    describes = bool(behind) and behind not in FUNCTION_WORDS
    return word in _ADJECTIVES and (describes or before in _DEGREES)


def _is_verb(place: int, text: Text) -> bool:
    word, before, behind = _around(place, text)
    if behind in _BEHIND.get(word, frozenset()) or (before, word) == ("from", "scratch"):
        return True
    is_infinitive = before == "to" and place > 1 and text.words[place - 2] in _BEFORE_TO
    return word in _VERBS and (before in _ACTORS or is_infinitive)


def _is_alone(word: str, sentence: tuple[str, ...]) -> bool:
    """Whether nothing but its letters could tell what is meant."""
    if word in _SELDOM_WORDS or (word in _PLACES and "where" in sentence):
        return False
    return _SAYING_NOTHING.issuperset(other for other in sentence if other != word)


def _around(place: int, text: Text) -> tuple[str, str, str]:
    """The word with the ones beside it; empty where there is none."""
    before = text.words[place - 1] if place else ""
    behind = text.words[place + 1] if place + 1 < len(text.words) else ""
    return text.words[place], before, behind
