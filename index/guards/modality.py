"""May, must, can: what is possible is not what is right.

In a question for a way, a place, a time or a person (`how can I`, `where should I`, `who do I`) the
verb says little, unless it is denied.
"""

from itertools import pairwise

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

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
_OPEN = wordset("how where when who")


def _read(text: Text) -> frozenset[str]:
    if not _OPEN.isdisjoint(text.words) and _NOT.isdisjoint(text.words):
        return frozenset()
    found = {_MODALS[word] for word in text.words if word in _MODALS}
    for first, second in pairwise(text.words):
        if first in {"have", "has"} and second == "to":
            found.add("must")
    return frozenset(found)


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "modality"


MODALITY = Guard(name="modality", read=_read, compare=_compare)
