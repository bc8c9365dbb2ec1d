"""Quoted strings are taken literally."""

import re

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_QUOTED = re.compile(
    r'"([^"]{1,400})"|“([^“”]{1,400})”|«([^«»]{1,400})»|[《〈]([^《》〈〉]{1,400})[》〉]'
    r"|[「『]([^「」『』]{1,400})[」』]|(?<!\w)\'([^\']{1,400})\'(?!\w)"
)
_OF_TWO_KINDS = wordset("c c++ c# java rust go kotlin haskell bash shell php perl ruby")
"""Here the marks say what it is: a character or a string, as it stands or filled in."""
_OF_ITS_KIND = re.compile(r"(?<!\w)(['\"])(\\?.|[^'\"\n]{0,100}\$[^'\"\n]{0,100})\1(?!\w)")


def _read(text: Text) -> tuple[str, ...]:
    found = (next(filter(None, groups)) for groups in _QUOTED.findall(text.source))
    marks: list[str] = []
    if not _OF_TWO_KINDS.isdisjoint(text.words):
        marks = [mark for mark, _ in _OF_ITS_KIND.findall(text.source)]
    return (*(_plain(part) for part in found), *marks)


def _plain(part: str) -> str:
    """As prose, unless it is one word, or no more than signs and spaces."""
    words = part.split()
    return " ".join(words if len(words) == 1 else map(str.lower, words)).strip(".,!?") or part


def _compare(a: tuple[str, ...], b: tuple[str, ...]) -> str | None:
    return "quotes"


QUOTES = Guard(name="quotes", read=_read, compare=_compare)
