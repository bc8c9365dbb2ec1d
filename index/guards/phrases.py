"""Content words in an order that does not depend on how the sentence was turned.

`the price of tea` and `the tea price`, `cats and dogs` and `dogs and cats`, `in Rome, where can I
…` and `where can I … in Rome` come out alike; who did what to whom does not.
"""

from itertools import pairwise
from typing import Literal

import msgspec

from index.guards.auxiliaries import ASKING, WH
from index.guards.synonyms import concept
from index.guards.text import Text
from index.guards.wordset import wordset

FUNCTION_WORDS = wordset("""
this that these those there here it its itself i me my mine you your yours we us our he him his
she her hers they them their be am is are was were been being do does did done have has had
having will would shall should can could may might must ought to in on at by for with from into
onto as about between among through during but if then than so because while not no what which
who whom whose where when why how whether please tell know known knowing want wanted wants like
just really very also too any some such much many more most way ways thing things one ones get
gets getting got go goes going gone let need needs needed actually exactly ever even possible able
give gives giving given explain describe cause causes reason reasons someone somebody something
anyone anybody anything people person persons use used uses using best kind kinds type types sort
sorts mean means hi hello hey thanks thank um uh yeah s t u
""")
_ARTICLES = wordset("a an the my your his her our their some any this these")
_WAYS = (("way",), ("ways",))
"""`a good way to` do it is how to do it."""
JOINTS = wordset("and or vs versus")
_GENITIVE = wordset("of in for on about")
"""`a project in physics` is a physics project."""
_LEADING = wordset("in on at for to with from during under within as")
_QUESTIONS = WH | ASKING
_MAX_LEADING_WORDS = 10

_Mark = Literal["break", "of", "joint"]


class _Run:
    """Content words in a row, and what stood before them."""

    __slots__ = ("mark", "words")

    def __init__(self, mark: _Mark) -> None:
        self.mark: _Mark = mark
        self.words: list[str] = []


class Order(msgspec.Struct, frozen=True):
    """Concepts of the content words: all in canonical order, and the one that stands last."""

    sequence: tuple[str, ...]
    last: str


def read_order(text: Text) -> Order:
    """The content words of a text."""
    runs = _runs(text)
    last = runs[-1].words[-1] if runs else ""
    _sort_joined(runs)
    return Order(tuple(_turn_genitives(runs)), last)


def _runs(text: Text) -> list[_Run]:
    runs = [_Run("break")]
    for place in _turned(text):
        word, word_stem = text.words[place], text.stems[place]
        if word in _ARTICLES or (word == "good" and text.words[place + 1 :][:1] in _WAYS):
            continue
        if word in JOINTS:
            runs.append(_Run("joint"))
        elif word in _GENITIVE:
            runs.append(_Run("of"))
        elif word in FUNCTION_WORDS:
            runs.append(_Run("break"))
        else:
            runs[-1].words.append(concept(word_stem))
    return [run for run in runs if run.words]


def _turned(text: Text) -> list[int]:
    """Places of the words, with a leading `in Rome,` moved behind the question."""
    places = list(range(len(text.words)))
    if not places or text.words[0] not in _LEADING:
        return places
    for place in places[1 : _MAX_LEADING_WORDS + 1]:
        if text.pauses[place] and text.words[place] in _QUESTIONS:
            return places[place:] + places[:place]
    return places


def _sort_joined(runs: list[_Run]) -> None:
    """Put the two sides of `and`, `or` into alphabetical order.

    The left run may begin before the phrase that is joined (`do cats eat raw fish or …`): of a long
    one only as many words count as the right side has.
    """
    for left, right in pairwise(runs):
        if right.mark != "joint":
            continue
        size = len(left.words)
        if size > len(right.words) and size > 2:
            size = len(right.words)
        head, tail = left.words[:-size], left.words[-size:]
        if tail > right.words:
            left.words, right.words = head + right.words, tail


def _turn_genitives(runs: list[_Run]) -> list[str]:
    """`a of b` as `b a`, which is also how `b's a` stands."""
    ordered: list[list[str]] = []
    for run in runs:
        if run.mark == "of" and ordered:
            ordered[-1] = run.words + ordered[-1]
        elif run.mark == "joint" and ordered:
            ordered[-1] = ordered[-1] + run.words
        else:
            ordered.append(run.words)
    return [word for words in ordered for word in words]
