"""Content words: how many stand on one side alone, and whether they stand in one order."""

import msgspec

from index.guards.distance import alike
from index.guards.known import is_known
from index.guards.phrases import read_order
from index.guards.text import Text
from index.guards.wordset import wordset

_MAX_WORDS_FOR_SLIPS = 8
_LIGHT_VERBS = wordset("get use know have want need go give tell like do")
"""Too common to be content; but who gets and who uses is told by their order."""


class Content(msgspec.Struct, frozen=True):
    """Concepts of the content words in canonical order, and light verbs as they stand."""

    sequence: tuple[str, ...]
    concepts: frozenset[str]
    verbs: tuple[str, ...]
    last: str
    """The word that stands last, whatever the canonical order."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Content words that the other text has no counterpart for."""

    num_only_a: int
    num_only_b: int
    reordered: bool
    named: bool = False
    """On both sides one of them is rare, as names are: the one is no other word for the other."""
    last: bool = False
    """One of them is the last word, where a question is narrowed (`… for children`)."""

    @property
    def exchanged(self) -> int:
        """Words that stand on one side where another word stands on the other."""
        return min(self.num_only_a, self.num_only_b)

    @property
    def added(self) -> int:
        """Words that one side has beyond that."""
        return abs(self.num_only_a - self.num_only_b)


def read_content(text: Text) -> Content:
    """The content words of a text."""
    order = read_order(text)
    verbs = tuple(stem for stem in text.stems if stem in _LIGHT_VERBS)
    return Content(order.sequence, frozenset(order.sequence), verbs, order.last)


def compare_content(a: Content, b: Content) -> Difference:
    """What the two do not share. Symmetric but for which side is called a."""
    swapped = a.verbs != b.verbs and sorted(a.verbs) == sorted(b.verbs)
    if a.sequence == b.sequence:
        return Difference(num_only_a=0, num_only_b=0, reordered=swapped)
    only_a = set(a.concepts - b.concepts)
    only_b = set(b.concepts - a.concepts)
    if len(only_a) <= _MAX_WORDS_FOR_SLIPS and len(only_b) <= _MAX_WORDS_FOR_SLIPS:
        _pair_off(only_a, only_b)
        _join(only_a, only_b)
        _join(only_b, only_a)
    return Difference(
        num_only_a=len(only_a),
        num_only_b=len(only_b),
        reordered=swapped or _reordered(a, b),
        named=_has_rare(only_a) and _has_rare(only_b),
        last=a.last in only_a or b.last in only_b,
    )


def _has_rare(words: set[str]) -> bool:
    return not all(map(is_known, words))


def _reordered(a: Content, b: Content) -> bool:
    common = a.concepts & b.concepts
    ours = [word for word in a.sequence if word in common]
    theirs = [word for word in b.sequence if word in common]
    # A word said twice where the other says it once is no change of order.
    if len(ours) != len(theirs):
        ours, theirs = list(dict.fromkeys(ours)), list(dict.fromkeys(theirs))
    return ours != theirs


def _pair_off(only_a: set[str], only_b: set[str]) -> None:
    """Take out words that are one word, misspelt or in another form."""
    for word in sorted(only_a):
        match = next((other for other in sorted(only_b) if alike(word, other)), None)
        if match is not None:
            only_a.discard(word)
            only_b.discard(match)


def _join(parts: set[str], wholes: set[str]) -> None:
    """Take out `web`, `page` against `webpage`."""
    for whole in sorted(wholes):
        inside = {part for part in parts if len(part) > 2 and part in whole}
        if inside and sum(map(len, inside)) >= len(whole) - 1:
            parts -= inside
            wholes.discard(whole)
