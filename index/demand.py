"""How much similarity is asked for between two prompts that no guard tells apart, and why. Pure."""

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from index.guards.content import Difference, compare_content
from index.guards.parse import Parsed

CONTENT = "content"
WORD_ORDER = "word_order"
"""The two judgements over content words; switched by name like the guards."""

Kind = Literal[
    "same", "added", "narrowed", "decided", "exchanged", "reworded", "reordered", "slip"
]  # fmt: skip
"""A field of `Thresholds`."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Least cosine similarity by what the content words of the two prompts say."""

    same: float
    """Every content word has a counterpart."""
    added: float
    """One prompt has a word more."""
    narrowed: float
    """… and it is the last one (`… for children`)."""
    decided: float
    """… and the answer is yes or no, where every word decides; or rare words are exchanged."""
    exchanged: float
    """One word stands for another."""
    reworded: float
    """Both have words of their own, and one has several: no two questions that differ in a single
    thing, whose likeness would be that of all their other words."""
    per_sign: float
    """Asked in Chinese, where a word is a sign or two, in place of that: so much beyond `exchanged`
    or `added` for each further word."""
    reordered: float
    """The words they share stand in another order, and others differ: then the sentence may have
    been turned. Where no other word differs, another order is always refused; so it is in Chinese,
    where characters count as words and some always differ."""
    slip: float
    """The two are one text, mistyped."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """A least similarity."""

    kind: Kind
    reason: str
    """What refuses where it is not met: `similarity`, `content` or `word_order`."""
    least: float
    """Infinite where none suffices."""


def demands(a: Parsed, b: Parsed, thresholds: Thresholds, on: frozenset[str]) -> Iterator[Demand]:
    """All that have to be met, in the order in which they are named where they are not. `on`:
    guards that are switched on."""
    yield Demand(kind="same", reason="similarity", least=thresholds.same)
    difference = compare_content(a.content, b.content)
    if difference.reordered and WORD_ORDER in on:
        alone = difference.exchanged + difference.added == 0
        turned = alone or a.chinese or b.chinese
        least = math.inf if turned else thresholds.reordered
        yield Demand(kind="reordered", reason=WORD_ORDER, least=least)
    if CONTENT in on:
        yield _of_content(a, b, difference, thresholds)


def _of_content(a: Parsed, b: Parsed, difference: Difference, thresholds: Thresholds) -> Demand:
    num_further = difference.exchanged + difference.added - 1
    chinese = a.chinese or b.chinese
    kind = _kind(a, b, difference)
    least: float = getattr(thresholds, kind)
    if chinese and num_further > 0 and kind != "decided":
        least += thresholds.per_sign * num_further
    return Demand(kind=kind, reason=CONTENT, least=least)


def _kind(a: Parsed, b: Parsed, difference: Difference) -> Kind:
    num_further = difference.exchanged + difference.added - 1
    if num_further < 0:
        return "same"
    if difference.exchanged and not difference.named:
        return "exchanged" if a.chinese or b.chinese or not num_further else "reworded"
    if difference.named or a.yes_or_no or b.yes_or_no:
        return "decided"
    return "narrowed" if difference.last else "added"
