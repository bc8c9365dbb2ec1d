"""Content words: how many stand on one side alone, and whether they stand in one order."""

import msgspec

from index.guards.distance import alike
from index.guards.stem import stem
from index.guards.synonyms import concept
from index.guards.text import Text
from index.guards.wordset import wordset

_FUNCTION_WORDS = frozenset(
    map(
        stem,
        wordset("""
a an the this that these those there here it its itself i me my mine you your yours we us our he
him his she her hers they them their be am is are was were been being do does did done have has
had having will would shall should can could may might must ought to of in on at by for with from
into onto as about between among through during and or but if then than so because while not no
what which who whom whose where when why how whether please tell know want like just really very
also too any some such much many more most way thing one ones get got go let s t want need actually
exactly ever even possible able me give explain describe someone somebody something anyone anybody
anything people person use used good best main well kind type sort mean hi hello hey thanks thank
"""),
    )
)
_MAX_WORDS_FOR_SLIPS = 8
_JOINED = frozenset({"and", "or", "vs", "versus", "&"})


class Content(msgspec.Struct, frozen=True):
    """Concepts of the content words, in order, each once; joined ones sorted (`x and y`)."""

    sequence: tuple[str, ...]
    concepts: frozenset[str]


class Difference(msgspec.Struct, frozen=True):
    """Content words that the other text has no counterpart for."""

    num_only_a: int
    num_only_b: int
    reordered: bool

    @property
    def exchanged(self) -> int:
        """Words that stand on one side where another word stands on the other."""
        return min(self.num_only_a, self.num_only_b)

    @property
    def added(self) -> int:
        """Words that one side has beyond that."""
        return abs(self.num_only_a - self.num_only_b)


SAME = Difference(0, 0, reordered=False)


def read_content(text: Text) -> Content:
    """The content words of a text."""
    sequence: list[str] = []
    joined = False
    for word, word_stem in zip(text.words, text.stems, strict=True):
        if word in _JOINED:
            joined = bool(sequence)
            continue
        if word_stem in _FUNCTION_WORDS:
            continue
        meaning = concept(word_stem)
        if meaning in sequence:
            joined = False
            continue
        sequence.append(meaning)
        if joined and sequence[-2] > meaning:
            sequence[-2:] = [meaning, sequence[-2]]
        joined = False
    return Content(tuple(sequence), frozenset(sequence))


def compare_content(a: Content, b: Content) -> Difference:
    """What the two do not share. Symmetric but for which side is called a."""
    if a.sequence == b.sequence:
        return SAME
    only_a = set(a.concepts - b.concepts)
    only_b = set(b.concepts - a.concepts)
    if len(only_a) <= _MAX_WORDS_FOR_SLIPS and len(only_b) <= _MAX_WORDS_FOR_SLIPS:
        _pair_off(only_a, only_b)
        _join(only_a, only_b)
        _join(only_b, only_a)
    common = a.concepts & b.concepts
    reordered = [word for word in a.sequence if word in common] != [
        word for word in b.sequence if word in common
    ]
    return Difference(len(only_a), len(only_b), reordered)


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
