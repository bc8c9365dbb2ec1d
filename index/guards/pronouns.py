"""Whose and who: he is not she, and mine is not yours.

`how do I …`, `how do you …`, `how can we …` and `how does one …` ask the same: a person that is
only the asker of such a question is set aside, together with what is said to belong to them.
"""

from itertools import pairwise

import msgspec

from index.guards.auxiliaries import DO, MODALS, WH
from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_PERSONS = {
    word: person
    for person, words in {
        "he": "he him his himself",
        "she": "she her hers herself",
        "they": "they them their theirs themselves",
        "i": "i me my mine myself",
        "you": "you your yours yourself u ur",
        "we": "we us our ours ourselves",
    }.items()
    for word in words.split()
}
_OWNS = wordset("my mine your yours our ours myself yourself ourselves")
_ASKER = "asker"
_ASKERS = wordset("i you we one")
_FREELY = wordset("how where when")
_AUXILIARY = DO | MODALS | {"to"}
_MODAL = wordset("can could should must")
_OTHERS = wordset("he she they")


class Persons(msgspec.Struct, frozen=True):
    """`others` in the order in which they act (he … her is not she … him)."""

    others: tuple[str, ...]
    speakers: frozenset[str]
    """Without one who only asks, unless something is said to be theirs (`how do I … my`)."""
    asker: str | None = None
    first: str = ""
    """Who is named first where others are: `will they … me` is not `will I … them`."""


def _read(text: Text) -> Persons:
    persons = [_PERSONS[word] for word in text.words if word in _PERSONS]
    if not persons:
        return Persons((), frozenset())
    others = tuple(person for person in persons if person in _OTHERS)
    speakers = frozenset(persons) - _OTHERS
    asker = _asker(text.words)
    first = persons[0] if others and asker is None else ""
    if not any(word in _OWNS and _PERSONS[word] == asker for word in text.words):
        speakers -= {asker}
    return Persons(others, speakers, asker, first)


def _asker(words: tuple[str, ...]) -> str | None:
    """Who only asks; also whoever asks for something (`can you explain`)."""
    if words[:2] in {("can", "you"), ("could", "you"), ("would", "you"), ("will", "you")}:
        return "you"
    verbs: frozenset[str] = frozenset()
    for first, second in pairwise(words):
        if first in _FREELY:
            verbs = _AUXILIARY
        elif first in WH:
            verbs = _MODAL
        if first in verbs and second in _ASKERS:
            return second
    return None


def _compare(a: Persons, b: Persons) -> str | None:
    if a.others != b.others or (a.first and b.first and a.first != b.first):
        return "pronouns"
    ours, theirs = a.speakers, b.speakers
    if a.asker and b.asker:
        # `how do I … my` and `how do you … your` ask the same.
        ours, theirs = _relative(ours, a.asker), _relative(theirs, b.asker)
    # Left out altogether is common in short questions ("reset password"); exchanged is not.
    return "pronouns" if ours - theirs and theirs - ours else None


def _relative(speakers: frozenset[str], asker: str) -> frozenset[str]:
    return frozenset(_ASKER if person == asker else person for person in speakers)


PRONOUNS = Guard(name="pronouns", read=_read, compare=_compare)
