"""One text typed twice: the same letters, but for a space, a mark or two neighbours exchanged."""

from index.guards.text import Text
from index.guards.wordset import wordset

_LEAST_LETTERS = 8
_LEAST_WORD = 5
_REAL_WORDS = wordset(
    "angel angle trial trail casual causal diary dairy quiet quite marital martial united untied"
    " sacred scared unclear nuclear brain brian silver sliver calvary cavalry direct dierct carol"
    " coral begin being barely barley loin lion tired tried filed field bread beard"
)
"""Pairs that a slip would join, and that are two words all the same."""


def squeeze(text: Text) -> str:
    """Letters and digits alone, in lower case."""
    return "".join(filter(str.isalnum, text.source.lower()))


def slipped(a: str, b: str, *, words: frozenset[str]) -> bool:
    """Whether two squeezed texts are one, mistyped. `words` are those that only one text has."""
    if len(a) < _LEAST_LETTERS or len(a) != len(b):
        return False
    if a == b:
        return True
    place = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    exchanged = a[place + 1 : place + 2] + a[place] + a[place + 2 :]
    return exchanged == b[place:] and all(
        len(word) >= _LEAST_WORD and word not in _REAL_WORDS for word in words
    )
