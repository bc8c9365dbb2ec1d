"""Names: capitalised words inside a sentence, acronyms, and words that carry digits."""

from collections.abc import Iterable, Iterator

import msgspec

from index.guards.distance import mistyped
from index.guards.guard import Guard
from index.guards.numerals import numbers_in
from index.guards.text import Text
from index.guards.wordset import wordset

_ALIASES = {
    alias: name
    for name, aliases in {
        "usa": "america states american",
        "uk": "britain british",
        "nyc": "ny york",
        "uae": "emirates",
        "js": "javascript",
        "ai": "intelligence",
        "tv": "television",
        "pc": "computer",
        "la": "angeles",
    }.items()
    for alias in aliases.split()
}
_COMMON = wordset(
    "i ok january february march april may june july august september october november december"
    " monday tuesday wednesday thursday friday saturday sunday"
)
_LETTERS = frozenset("bcdefghjklmnopqrvwxyz")
"""Alone these name something: a language, a vitamin, a variable."""
_TITLE_SHARE = 0.6
"""With more capitals than that the text is written in title case, and they say nothing."""
_LEAST_LENGTH_FOR_SLIPS = 6
_MAX_SLIPS = 4


class Names(msgspec.Struct, frozen=True):
    """`names` of one text, and all its words, since the other writer may not use capitals."""

    names: frozenset[str]
    words: frozenset[str]
    exact: frozenset[str] = frozenset()
    """Names in capitals (`NATO`, `GATTACA`), which nobody mistypes unseen."""


def _read(text: Text) -> Names:
    words = frozenset(_ALIASES.get(word, word) for word in text.words)
    inside = [
        (word, raw)
        for word, raw, start in zip(text.words, text.raws, text.starts, strict=True)
        if raw[0].isalpha() and not start
    ]
    capitalised = [word for word, raw in inside if raw[0].isupper()]
    if len(capitalised) > _TITLE_SHARE * len(inside):
        capitalised = []
    exact = _named(() if text.shouts else _acronyms(text))
    return Names(_named(capitalised) | exact | (words & _LETTERS), words, exact)


def _acronyms(text: Text) -> Iterator[str]:
    pairs = zip(text.words, text.raws, strict=True)
    return (word for word, raw in pairs if len(raw) > 1 and raw.isupper())


def _named(words: Iterable[str]) -> frozenset[str]:
    """But for numbers, which have a guard of their own (`World War II`)."""
    return frozenset(
        _ALIASES.get(word, word) for word in words if word not in _COMMON and not numbers_in(word)
    )


def _compare(a: Names, b: Names) -> str | None:
    if _foreign(a, b) or _foreign(b, a):
        return "names"
    return None


def _foreign(a: Names, b: Names) -> bool:
    """Whether a name of `a` has nothing in `b` that it could be."""
    others = b.words - a.words
    foreign = a.names - b.words
    return len(foreign) > _MAX_SLIPS or any(
        not any(_same(name, word, exact=name in a.exact) for word in others) for name in foreign
    )


def _same(name: str, word: str, *, exact: bool) -> bool:
    if name.rstrip("s") == word.rstrip("s"):
        return True
    shortest = min(len(name), len(word))
    return not exact and shortest >= _LEAST_LENGTH_FOR_SLIPS and mistyped(name, word)


NAMES = Guard(name="names", read=_read, compare=_compare)
