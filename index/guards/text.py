"""A prompt as words: contractions opened, case folded, stems beside them."""

import re
import unicodedata

import msgspec

from index.guards import chinese
from index.guards.stem import stem
from index.guards.wordset import wordset


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A text read once. The five tuples are parallel."""

    source: str
    words: tuple[str, ...]
    """Lower case; numbers and punctuated names such as `c++` are words too."""
    stems: tuple[str, ...]
    raws: tuple[str, ...]
    """As written; the parts of a contraction carry what was written for the whole."""
    starts: tuple[bool, ...]
    """Whether a sentence begins here, where a capital letter says nothing."""
    pauses: tuple[bool, ...]
    """Whether a comma stands before the word."""

    @property
    def shouts(self) -> bool:
        """Whether it is in capitals, and they say nothing."""
        return len(self.raws) > 2 and 2 * sum(map(str.isupper, self.raws)) > len(self.raws)


_TOKEN = re.compile(
    r"\.net\b|\b[a-z]\+\+|\b[a-z]#"
    # A decimal, a version, an address, a ratio or a time is one word; so is a power of ten.
    r"|(?:(?<![\w.])\.)?\d+(?:[,.:]\d+)*(?:e[+-]?\d+(?!\w))?"
    rf"|{chinese.WORD}"
    r"|[^\W\d_\u3400-\u9fff]+(?:'[^\W\d_]+)*"
    r"|[.!?:;,\n。、]",
    re.IGNORECASE,
)

_CONTRACTIONS = {
    "won't": ("will", "not"),
    "can't": ("can", "not"),
    "cannot": ("can", "not"),
    "shan't": ("shall", "not"),
    "ain't": ("is", "not"),
    "let's": ("let", "us"),
    "gonna": ("going", "to"),
    "wanna": ("want", "to"),
    "gotta": ("have", "to"),
    "whats": ("what", "is"),
    "hows": ("how", "is"),
    "wheres": ("where", "is"),
    "whos": ("who", "is"),
    "im": ("i", "am"),
    "ive": ("i", "have"),
    "thats": ("that", "is"),
    "alot": ("a", "lot"),
    "wont": ("will", "not"),
    "cant": ("can", "not"),
} | {
    verb + "nt": (verb, "not")
    for verb in wordset("do does did is are was were have has had would could should")
}

LOANS = wordset("""
café cafés naïve cliché clichés fiancé fiancée façade façades jalapeño jalapeños piñata piñatas
crème brûlée déjà entrée entrées décor début protégé protégés soufflé soufflés purée papier mâché
matinée mêlée crêpe crêpes doppelgänger smörgåsbord pokémon zürich québec montréal bogotá málaga
córdoba são résumé résumés resumé
""")
"""Written without their accents they are the same."""

_ENDINGS = {
    "n't": "not",
    "'ll": "will",
    "'re": "are",
    "'ve": "have",
    "'m": "am",
    "'d": "would",
}

_FRAMES = frozenset(
    tuple(frame.split())
    for frame in """
hi|hello|hey|please|ok|so|well|um|uh|do you think|do you know|i wonder|i was wondering
i am wondering|i want to know|i would like to know|i need to know|can you tell me|could you tell me
can you please|could you please|would you please|will you please|would you mind explaining
tell me|can you explain|could you explain|please explain|explain|can you please explain|good morning
would you tell me|can you help me|help me|i have a question|quick question|just wondering
""".replace("\n", "|").split("|")
    if frame
)
_FRAME_LENGTHS = (5, 4, 3, 2, 1)

_RAISED = re.compile(r"[\u00b2\u00b3\u00b9\u2070\u2074-\u207f]+|[\u00bc-\u00be\u2150-\u215e]")
_SIGNS = str.maketrans({"\u2019": "'", "\u2018": "'", "\u2212": "-"})

_FIRST_CHINESE = "\u3400"

_OF_ALL = wordset(
    "all every each any no none nothing anything everything"
    " nobody anybody everybody anyone everyone"
)
_BY_ONE = wordset("which who what else next last")
_NONE = wordset("nothing nobody none no")
"""`I tried everything but nothing works`."""
_NEAR_ALL, _NEAR_ONE = 6, 2
"""Words from `all`, and from `which`, to the `but` that takes out of it: `every day but Monday`."""
_GOING_ON = wordset(
    "not also only i you he she it we they this that there is are was were do does did have has can"
    " could will would should still then when if how what which who why where"
)
"""What follows a `but` that takes nothing out."""

_OWNERLESS = wordset("what who where how when why that this it he she there here")
"""Before `'s` these mean `is`; anything else is an owner."""


def read_text(source: str, *, is_but_plain: bool = False) -> Text:
    """Split a prompt into words. `is_but_plain`: no `but` is read as `except`."""
    plain = _plain(source)
    words: list[str] = []
    raws: list[str] = []
    starts: list[bool] = []
    pauses: list[bool] = []
    start, pause = True, False
    for raw in _TOKEN.findall(plain):
        if raw in ".!?:;,\n。、":
            start, pause = start or raw not in ",、", True
            continue
        for word in _open(raw.lower()) if raw != "US" else ("usa",):
            words.append(word)
            raws.append(raw)
            starts.append(start)
            pauses.append(pause)
        start = pause = False
    if not is_but_plain:
        _except(words, raws, pauses)
    first = _frame(words)
    return Text(
        source=plain,
        words=tuple(words[first:]),
        stems=tuple(map(stem, words[first:])),
        raws=tuple(raws[first:]),
        starts=tuple(starts[first:]),
        pauses=tuple(pauses[first:]),
    )


def _plain(source: str) -> str:
    """Compatibility forms as what they stand for; but `10²` is not 102, and `1½` not 11/2."""
    if source.isascii():
        return source
    return unicodedata.normalize("NFKC", _RAISED.sub(_lowered, source)).translate(_SIGNS)


def _lowered(raised: re.Match[str]) -> str:
    sign = "^" if unicodedata.decomposition(raised[0][0]).startswith("<super>") else " "
    return sign + raised[0]


def _except(words: list[str], raws: list[str], pauses: list[bool]) -> None:
    """Write `but` as `except` where it means that."""
    for place, word in enumerate(words[:-1]):
        if word == "but" and not pauses[place] and _takes_out(place, words, raws, pauses):
            words[place] = "except"


def _takes_out(place: int, words: list[str], raws: list[str], pauses: list[bool]) -> bool:
    """Whether what follows a `but` is taken out of `all` or `which`, or by its name."""
    following = words[place + 1]
    if place and words[place - 1] in _OF_ALL:
        return following not in _NONE
    if following in _GOING_ON:
        return False
    if following == "for":
        return "would" in words  # `what would have happened but for the war`
    if following == "one" or (raws[place].islower() and raws[place + 1].istitle()):
        return True
    clause = max((other for other in range(place) if pauses[other]), default=0)
    of_all = words[max(clause, place - _NEAR_ALL) : place]
    of_one = words[max(clause, place - _NEAR_ONE) : place]
    return not (_OF_ALL.isdisjoint(of_all) and _BY_ONE.isdisjoint(of_one))


def without_accents(word: str) -> str:
    """In small letters."""
    apart = unicodedata.normalize("NFD", word.casefold())
    return "".join(letter for letter in apart if not unicodedata.combining(letter))


def _frame(words: list[str]) -> int:
    """Length of the polite opening, which asks for nothing."""
    first = 0
    while first < len(words):
        length = next(
            (size for size in _FRAME_LENGTHS if tuple(words[first : first + size]) in _FRAMES), 0
        )
        if length == 0:
            break
        first += length
    return first


def _open(word: str) -> tuple[str, ...]:
    opened = _CONTRACTIONS.get(word)
    if opened is not None:
        return opened
    if word in LOANS:
        return (without_accents(word),)
    if word[0] >= _FIRST_CHINESE:
        return chinese.read_as(word)
    if "'" not in word:
        return (word,)
    for ending, meaning in _ENDINGS.items():
        if word.endswith(ending) and len(word) > len(ending):
            return (word[: -len(ending)], meaning)
    if word.endswith("'s"):
        owner = word[:-2]
        return (owner, "is") if owner in _OWNERLESS else (owner,)
    return (word.replace("'", ""),)
