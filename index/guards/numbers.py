"""Numbers, and the signs before them."""

import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import msgspec

from index.guards.guard import Guard
from index.guards.numerals import DECADES, LOOSE, SCALES, Number, negative, numbers_in
from index.guards.text import Text

_SIGNED = re.compile(r"(?<![\w)\]])-(\.?\d[\d,.]*)")
_DECADE = re.compile(r"(?:1[5-9]|20)\d0")
_MAX_SCALED = 10**30
_THOUSAND = 1000


class Numbers(msgspec.Struct, frozen=True):
    """`certain` in one fixed order; `loose` may be no numbers."""

    certain: tuple[Number, ...]
    loose: frozenset[Number]


class _Sum:
    """A number in several words: `two thousand` `five hundred`, `3` `million`."""

    __slots__ = ("_is_spelled", "_part", "_whole")

    def __init__(self, number: int | Fraction, *, is_spelled: bool) -> None:
        """`is_spelled`: in letters; only such a number goes on with another one."""
        self._whole: int | Fraction = 0
        self._part = number
        self._is_spelled = is_spelled

    def worth(self) -> int | Fraction:
        return self._whole + self._part

    def scaled(self, scale: int) -> bool:
        """Whether the scale belongs to it."""
        if self._part == 0 or self.worth() > _MAX_SCALED:
            return False
        self._part *= scale
        self._is_spelled = True
        if scale >= _THOUSAND:
            self._whole, self._part = self._whole + self._part, 0
        return True

    def followed(self, value: Number) -> bool:
        """Whether the number, spelled, belongs to it."""
        if not self._is_spelled or not isinstance(value, int):
            return False
        if self._part:
            fits = value < self._part and self._part % (100 if value > 9 else 10) == 0
        else:
            fits = 0 < value < _THOUSAND and self._whole > 0
        self._part += value if fits else 0
        return fits


def _read(text: Text) -> Numbers:
    certain: list[Number] = []
    loose: set[Number] = set()
    current: _Sum | None = None
    for word in _spelled_out(text.words):
        found = numbers_in(word)
        if current is not None:
            if _goes_on(current, word, found):
                continue
            if word not in LOOSE:
                certain.append(current.worth())
                current = None
        if word in LOOSE:
            loose.update(found)
        elif len(found) == 1 and not isinstance(found[0], str):
            current = _Sum(found[0], is_spelled=word[0].isalpha())
        else:
            certain.extend(found)
    if current is not None:
        certain.append(current.worth())
    for match in _SIGNED.findall(text.source):
        certain.extend(map(negative, numbers_in(match.rstrip(".,"))))
    return Numbers(tuple(sorted(certain, key=str)), frozenset(loose))


def _spelled_out(words: tuple[str, ...]) -> Iterator[str]:
    """Half a dozen, half a million as .5 of it; the eighties and the 1980s as one number, which is
    no year's. The 80s may also be degrees."""
    padded = ("", *words, "", "")
    for place, word in enumerate(words):
        before, after, next_after = padded[place], padded[place + 2], padded[place + 3]
        if word == "half" and (after in SCALES or (after == "a" and next_after in SCALES)):
            yield "0.5"
        elif word == "a" and before == "half" and after in SCALES:
            continue
        elif word in DECADES:
            yield f"{DECADES[word]}.5"
        elif after == "s" and _DECADE.fullmatch(word):
            yield f"{word}.5"
        else:
            yield word


def _goes_on(current: _Sum, word: str, found: tuple[Number, ...]) -> bool:
    if word in SCALES:
        return current.scaled(SCALES[word])
    return bool(found) and word[0].isalpha() and current.followed(found[0])


def _compare(a: Numbers, b: Numbers) -> str | None:
    exchanged = a.loose.difference(b.loose, b.certain) and b.loose.difference(a.loose, a.certain)
    return "numbers" if exchanged or _missing(a, b) or _missing(b, a) else None


def _missing(a: Numbers, b: Numbers) -> bool:
    """Whether `a` has a number that `b` has not, not even as a loose word."""
    return not b.loose.issuperset(Counter(a.certain) - Counter(b.certain))


NUMBERS = Guard(name="numbers", read=_read, compare=_compare)
