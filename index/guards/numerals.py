"""What a written number is worth: digits, words, ordinals, Roman and Chinese numerals."""

import re
from fractions import Fraction

from index.guards.wordset import wordset

Number = int | Fraction | str
"""Exact. What is more a name than a quantity (`1.2.3`, `007`, `3.10`, `1e5`, `2:1`, an order number
of forty digits) is itself, as it is spelled."""

_CARDINALS = """
0 zero|1 one|2 two|3 three|4 four|5 five|6 six|7 seven|8 eight|9 nine|10 ten|11 eleven|12 twelve
13 thirteen|14 fourteen|15 fifteen|16 sixteen|17 seventeen|18 eighteen|19 nineteen|20 twenty
30 thirty|40 forty|50 fifty|60 sixty|70 seventy|80 eighty|90 ninety
"""
_OTHERS = """
1 first once|2 second twice double pair|3 third thirds thrice triple|5 fifth|8 eighth|9 ninth
12 twelfth
"""


def _values(table: str) -> dict[str, int]:
    lines = (line.split() for line in table.strip().replace("\n", "|").split("|"))
    return {word: int(value) for value, *words in lines for word in words}


def _ordinal(cardinal: str) -> str:
    return (cardinal[:-1] + "ie" if cardinal.endswith("y") else cardinal) + "th"


SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "k": 1000,
    "lakh": 100_000,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}
LOOSE = wordset("one first once second half double pair")
"""Often no numbers: `one can`, `at first`, `a second`."""

DECADES = {
    "twenties": 1920,
    "thirties": 1930,
    "forties": 1940,
    "fifties": 1950,
    "sixties": 1960,
    "seventies": 1970,
    "eighties": 1980,
    "nineties": 1990,
}
_WORDS: dict[str, Number] = {
    **{_ordinal(word): value for word, value in (_values(_CARDINALS) | SCALES).items()},
    **_values(_CARDINALS),
    **_values(_OTHERS),
    **{scale: value for scale, value in SCALES.items() if scale != "k"},
    "half": Fraction(1, 2),
}
_CHINESE = {char: value for value, char in enumerate("零一二三四五六七八九")} | {
    "两": 2,
    "十": 10,
    "百": 100,
    "千": 1000,
    "万": 10_000,
    "亿": 10**8,
}
_ROMAN = re.compile(
    r"(?=[ivx]{2}|[ivxlcdm]{4})m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})"
)
_ROMAN_LETTERS = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100, "d": 500, "m": 1000}

_WHOLE = re.compile(r"(?:0|[1-9]\d{0,29})")
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:,\d{3}){1,9}|[1-9]\d?(?:,\d\d){1,9},\d{3}")
"""Thousands, or lakhs and crores."""
_PARTED = re.compile(r"(?:0|[1-9]\d{0,29})?\.\d{0,29}[1-9]")


def numbers_in(word: str) -> tuple[Number, ...]:
    """Of a lower-case word; one, unless it is a list (`1,2,5`), or none."""
    if not word[0].isdigit() and word[0] != ".":
        value = _named(word)
        return () if value is None else (value,)
    whole, dot, part = word.partition(".")
    plain = (whole.replace(",", "") if _GROUPED.fullmatch(whole) else whole) + dot + part
    if _WHOLE.fullmatch(plain):
        return (int(plain),)
    if _PARTED.fullmatch(plain):
        return (Fraction(plain),)
    if "," in plain:
        return tuple(number for each in plain.split(",") for number in numbers_in(each))
    return (plain,)


def negative(number: Number) -> Number:
    """Below zero."""
    return f"-{number}" if isinstance(number, str) else -number


def _named(word: str) -> Number | None:
    value = _WORDS.get(word, _CHINESE.get(word))
    return _roman(word) if value is None and _ROMAN.fullmatch(word) else value


def _roman(word: str) -> int:
    values = [_ROMAN_LETTERS[letter] for letter in word]
    after = [*values[1:], 0]
    return sum(-one if one < next_one else one for one, next_one in zip(values, after, strict=True))
