"""Was, is, will be; used to; becoming; still: when something holds."""

from itertools import pairwise

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_MARKS = {
    word: mark
    for mark, words in {
        "past": "was were did had",
        "future": "will shall",
        "become": "become becomes becoming became",
        "still": "still",
        "already": "already",
        "again": "again",
        "anymore": "anymore longer",
        "yet": "yet",
        "always": "always forever",
    }.items()
    for word in words.split()
}

_USED_TO = {("used", "to"), ("use", "to")}
_BE = wordset("is are was were be get")
"""Before `used to` it means purpose or habit: `is it used to cut`, `get used to`."""


def _read(text: Text) -> frozenset[str]:
    words = text.words
    marks = {_MARKS[word] for word in words if word in _MARKS}
    for place, pair in enumerate(pairwise(words)):
        if pair in _USED_TO and _BE.isdisjoint(words[max(0, place - 2) : place]):
            marks.add("used to")
            marks.discard("past")
        elif pair == ("going", "to"):
            marks.add("future")
    return frozenset(marks)


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "tense"


TENSE = Guard(name="tense", read=_read, compare=_compare)
