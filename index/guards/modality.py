"""May, must, can: what is possible is not what is right.

In a question for a way, a place, a time or a person (`how can I`, `where should I`, `who do I`) the
verb says little, unless it is denied.
"""

from itertools import pairwise

from index.guards.guard import Guard
from index.guards.question import read_question
from index.guards.text import Text

_MODALS = {
    word: modal
    for modal, words in {
        "can": "can could able possible",
        "may": "may might allowed legal",
        "should": "should ought better",
        "must": "must need needs required",
        "would": "would",
    }.items()
    for word in words.split()
}
_NOT = frozenset({"not", "never"})
_OPEN = frozenset({"how", "where", "when", "who"})


def _read(text: Text) -> frozenset[str]:
    asked = read_question(text).split(" ")[0]  # `how long` is a way too
    if asked in _OPEN and _NOT.isdisjoint(text.words):
        return frozenset()
    found = {_MODALS[word] for word in text.words if word in _MODALS}
    for first, second in pairwise(text.words):
        if first in {"have", "has"} and second == "to":
            found.add("must")
    return frozenset(found)


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "modality"


MODALITY = Guard(name="modality", read=_read, compare=_compare)
