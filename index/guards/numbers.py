"""Numbers, as digits or in words, ordinals and Roman numerals; and the signs between them."""

import re
from decimal import Decimal

import msgspec

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_WORDS = """
0 zero|1 one|2 two|3 three|4 four|5 five|6 six|7 seven|8 eight|9 nine|10 ten|11 eleven
12 twelve dozen|13 thirteen|14 fourteen|15 fifteen|16 sixteen|17 seventeen|18 eighteen|19 nineteen
20 twenty|30 thirty|40 forty|50 fifty|60 sixty|70 seventy|80 eighty|90 ninety
1 first once|2 second twice double pair|3 third thrice triple|4 fourth|5 fifth|6 sixth|7 seventh
8 eighth|9 ninth|10 tenth|0.5 half
"""
_VALUES = {
    word: Decimal(value)
    for line in _WORDS.replace("|", "\n").strip().split("\n")
    for value, *words in (line.split(),)
    for word in words
}
_SCALES = {
    "hundred": 100,
    "thousand": 1000,
    "k": 1000,
    "lakh": 100_000,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}
_LOOSE = wordset("one first once second half double pair")
"""Often no numbers: `one can`, `at first`, `a second`."""
_ROMAN = {"II": 2, "III": 3, "IV": 4, "VI": 6, "VII": 7, "VIII": 8, "IX": 9, "XI": 11, "XII": 12}
_CHINESE = {char: value for value, char in enumerate("零一二三四五六七八九")} | {
    "两": 2,
    "十": 10,
    "百": 100,
    "千": 1000,
    "万": 10_000,
    "亿": 10**8,
}
_SIGNED = re.compile(r"(?<![\w)\]])-(\d[\d,.]*)")
_DIGITS = re.compile(r"\d")


class Numbers(msgspec.Struct, frozen=True):
    """`certain` in rising order, exact (order numbers are long); `loose` may be no numbers."""

    certain: tuple[Decimal, ...]
    loose: frozenset[Decimal]


def _read(text: Text) -> Numbers:
    certain: list[Decimal] = []
    loose: set[Decimal] = set()
    current: Decimal | None = None
    for word, raw in zip(text.words, text.raws, strict=True):
        if word in _SCALES and current is not None:
            current *= _SCALES[word]
            continue
        value = _value(word, raw)
        if value is None:
            _flush(current, certain)
            current = None
        elif word in _LOOSE:
            loose.add(value)
        elif current is not None and value < current and current % (100 if value > 9 else 10) == 0:
            current += value
        else:
            _flush(current, certain)
            current = value
    _flush(current, certain)
    certain.extend(-_digits(match) for match in _SIGNED.findall(text.source))
    return Numbers(tuple(sorted(certain)), frozenset(loose))


def _flush(current: Decimal | None, into: list[Decimal]) -> None:
    if current is not None:
        into.append(current)


def _value(word: str, raw: str) -> Decimal | None:
    if _DIGITS.match(word):
        return _digits(word)
    if word in _VALUES:
        return _VALUES[word]
    value = _CHINESE.get(word, _ROMAN.get(raw))
    if value is None and word != "k":
        value = _SCALES.get(word)
    return None if value is None else Decimal(value)


def _digits(word: str) -> Decimal:
    """`1,000` is a thousand and `1.5` one and a half; `1.2.3` counts as its digits in a row."""
    plain = word.rstrip(".,").replace(",", "")
    return Decimal(plain if plain.count(".") <= 1 else plain.replace(".", ""))


def _compare(a: Numbers, b: Numbers) -> str | None:
    if _missing(a, b) or _missing(b, a):
        return "numbers"
    return None


def _missing(a: Numbers, b: Numbers) -> bool:
    """Whether `a` has a number that `b` has not, not even as a loose word."""
    left = list(b.certain)
    for value in a.certain:
        if value in left:
            left.remove(value)
        elif value not in b.loose:
            return True
    return False


NUMBERS = Guard(name="numbers", read=_read, compare=_compare)
