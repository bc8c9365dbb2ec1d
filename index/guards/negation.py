"""Negation: how often a text says no, and to what."""

from itertools import pairwise

import msgspec

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_NEGATIONS = wordset(
    "not no never none nobody nothing nowhere neither nor without unable hardly barely non"
)
_PREVENTIONS = wordset(
    "avoid prevent stop quit refuse lack lacking except unless"
    " cancel cancels canceled cancelled canceling cancelling"
)
"""Words that turn around what follows; `stop` and `not` do not stand for each other."""
_PASSED_OVER = wordset(
    "a an the any i you he she it we they this that there my your his her its our their"
    " am is are was were be been being do does did have has had to able want"
)
"""Words that may stand between a negation and what it denies."""


class Negation(msgspec.Struct, frozen=True):
    """`denied`: stems of what each negation stands before; `stems`: all of the text."""

    count: int
    preventions: frozenset[str]
    denied: frozenset[str]
    stems: frozenset[str]


def _read(text: Text) -> Negation:
    count = sum(word in _NEGATIONS for word in text.words)
    # "whether or not" and "no." before a number deny nothing.
    pairs = set(pairwise(text.words))
    count -= ("or", "not") in pairs
    return Negation(
        count, _PREVENTIONS.intersection(text.words), _denied(text), frozenset(text.stems)
    )


def _denied(text: Text) -> frozenset[str]:
    denied = set()
    for place, word in enumerate(text.words):
        if word in _NEGATIONS:
            after = zip(text.words[place + 1 :], text.stems[place + 1 :], strict=True)
            denied.add(next((stem for word, stem in after if word not in _PASSED_OVER), ""))
    return frozenset(denied)


def _compare(a: Negation, b: Negation) -> str | None:
    if a.count != b.count or _turned(a, b) or _turned(b, a):
        return "negation"
    # Two words of prevention may mean the same (avoid, prevent); one against none does not.
    one_alone = bool(a.preventions) != bool(b.preventions)
    return "negation" if one_alone else None


def _turned(a: Negation, b: Negation) -> bool:
    """Whether `b` says what `a` denies, and denies something else."""
    return bool(b.denied) and not (a.denied - b.denied).isdisjoint(b.stems)


NEGATION = Guard(name="negation", read=_read, compare=_compare)
