"""One text typed twice: the same letters, but for a space, a mark or two neighbours exchanged.

A slip is one of letters. What stands at a digit, at a single letter or on a line of its own is
meant: `5!`, `2:1`, `y'`, an indented line.
"""

import re

from index.guards.known import is_known
from index.guards.text import Text

_LEAST_LETTERS = 8
_LEAST_WORD = 5
_SILENT = re.compile(
    r"(?<=[^\W\d_])-(?=[^\W\d_]{2})|(?<=[^\W\d_]{2})'(?=[^\W\d_]{2})|(?<=[^\W\d_])'(?=(?:s|t|d|m|re|ll|ve)\b)"
    r"|(?<=[^\W\d_]{2})[?.,!:;]++(?!\S)|(?<=\w)[?.,]++(?!\S)|(?<![?.])[?.]++\Z|\?(?=[^\W\d_]\Z)"
)
"""Marks that a typist leaves out."""
_SPACES = re.compile(r"(?<=[^\W\d_])[ \t]+(?=[^\W\d_])")


def squeeze(text: Text) -> str:
    """In lower case, without the spaces between letters and without the marks of prose."""
    return _SPACES.sub("", _SILENT.sub("", text.source.strip().lower())).rstrip()


def slipped(a: str, b: str, *, words: frozenset[str]) -> bool:
    """Whether two squeezed texts are one, mistyped. `words` are those that only one text has; were
    they all words that there are, somebody could mean them (`trail`, `trial`)."""
    if len(a) < _LEAST_LETTERS or len(a) != len(b):
        return False
    if words and all(map(is_known, words)):
        return False
    return a == b or (min(map(len, words), default=0) >= _LEAST_WORD and _exchanged(a, b))


def _exchanged(a: str, b: str) -> bool:
    """Whether two neighbouring letters have changed places."""
    place = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    neighbours = a[place : place + 2]
    return neighbours.isalpha() and a[:place] + neighbours[::-1] + a[place + 2 :] == b
