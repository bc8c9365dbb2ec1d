"""Whose and who: he is not she, and mine is not yours.

`how do I …`, `how do you …`, `how can we …` and `how does one …` ask the same: a person that is
only the asker of such a question is set aside, together with what is said to belong to them.
"""

from itertools import pairwise

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
_ASKERS = wordset("i you we one")
_QUESTION = wordset("how where what why when which")
_AUXILIARY = wordset("do does did can could should would to may might must will")
_OTHERS = wordset("he she they")


def _read(text: Text) -> frozenset[str]:
    persons = {_PERSONS[word] for word in text.words if word in _PERSONS}
    return frozenset(persons - {_asker(text.words)}) if persons else frozenset()


def _asker(words: tuple[str, ...]) -> str | None:
    asking = False
    for first, second in pairwise(words):
        asking = asking or first in _QUESTION
        if asking and first in _AUXILIARY and second in _ASKERS:
            return second
    return None


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    if a & _OTHERS != b & _OTHERS:
        return "pronouns"
    # Left out altogether is common in short questions ("reset password"); exchanged is not.
    return "pronouns" if a - b and b - a else None


PRONOUNS = Guard(name="pronouns", read=_read, compare=_compare)
