"""Was, is, will be; used to; becoming; still: when something holds."""

from index.guards.guard import Guard
from index.guards.text import Text

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


def _read(text: Text) -> frozenset[str]:
    marks = {_MARKS[word] for word in text.words if word in _MARKS}
    for before, first, second in zip(("", *text.words), text.words, text.words[1:], strict=False):
        if first in {"used", "use"} and second == "to" and before not in {"is", "are", "be", "get"}:
            marks.add("used to")
            marks.discard("past")
        elif first == "going" and second == "to":
            marks.add("future")
    return frozenset(marks)


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "tense"


TENSE = Guard(name="tense", read=_read, compare=_compare)
