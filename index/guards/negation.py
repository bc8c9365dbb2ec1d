"""Negation: how often a text says no."""

from itertools import pairwise

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_NEGATIONS = wordset(
    "not no never none nobody nothing nowhere neither nor without unable hardly barely non"
)
_PREVENTIONS = wordset("avoid prevent stop quit refuse lack lacking except unless")
"""Words that turn around what follows; `stop` and `not` do not stand for each other."""


def _read(text: Text) -> tuple[int, frozenset[str]]:
    count = sum(word in _NEGATIONS for word in text.words)
    # "whether or not" and "no." before a number deny nothing.
    pairs = set(pairwise(text.words))
    count -= ("or", "not") in pairs
    return count, _PREVENTIONS.intersection(text.words)


def _compare(a: tuple[int, frozenset[str]], b: tuple[int, frozenset[str]]) -> str | None:
    if a[0] != b[0]:
        return "negation"
    turned = a[1] ^ b[1]
    # Two words of prevention may mean the same (avoid, prevent); one against none does not.
    return "negation" if turned and not (a[1] and b[1]) else None


NEGATION = Guard(name="negation", read=_read, compare=_compare)
