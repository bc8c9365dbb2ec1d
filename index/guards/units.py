"""Units of measure and money."""

import re
from itertools import pairwise, product

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_PREFIXES = {
    "kilo": "k",
    "mega": "m",
    "giga": "g",
    "tera": "t",
    "peta": "p",
    "centi": "c",
    "deci": "d",
    "milli": "m",
    "micro": "u",
    "nano": "n",
    "pico": "p",
}
_BASES = {
    "gram": "g gram grams gramme grammes",
    "metre": "m meter meters metre metres",
    "litre": "l liter liters litre litres",
    "second": "s second seconds",
    "watt": "w watt watts",
    "volt": "v volt volts",
    "amp": "a amp amps ampere amperes",
    "hertz": "hz hertz",
    "joule": "j joule joules",
    "pascal": "pa pascal pascals",
    "byte": "b byte bytes",
    "bit": "bit bit bits",
    "calorie": "cal calorie calories",
    "ton": "t ton tons tonne tonnes",
}
"""The symbol, and the names."""
_OTHERS = {
    "kilogram": "kg kgs kilo kilos",
    "microgram": "mcg",
    "pound": "lb lbs pound pounds",
    "ounce": "oz ounce ounces",
    "stone": "stones",
    "kilometre": "km kms",
    "centimetre": "cm cms",
    "millimetre": "mm",
    "mile": "mile miles mi",
    "foot": "foot feet ft",
    "inch": "inch inches",
    "yard": "yards",
    "millilitre": "ml",
    "milligram": "mg",
    "gallon": "gallon gallons",
    "pint": "pint pints",
    "quart": "quart quarts",
    "cup": "cups",
    "teaspoon": "tsp teaspoon teaspoons",
    "tablespoon": "tbsp tablespoon tablespoons",
    "celsius": "celsius centigrade",
    "fahrenheit": "fahrenheit",
    "kelvin": "kelvin",
    "mph": "mph",
    "kmh": "kmh kph",
    "knot": "knots",
    "percent": "percent percentage pct",
    "megabyte": "mb",
    "gigabyte": "gb",
    "terabyte": "tb",
    "kilobyte": "kb",
    "dollar": "dollar dollars usd bucks",
    "cent": "cents",
    "euro": "euro euros eur",
    "sterling": "gbp sterling",
    "rupee": "rupee rupees inr rs",
    "yen": "yen jpy",
    "yuan": "yuan rmb cny",
    "minute": "minute minutes",
    "hour": "hour hours hourly",
    "day": "day days daily",
    "week": "week weeks weekly",
    "month": "month months monthly",
    "year": "year years yearly annual annually annum",
    "decade": "decade decades",
    "century": "century centuries",
    "kilocalorie": "kcal",
    "acre": "acre acres",
    "hectare": "hectare hectares",
}


def _units() -> dict[str, str]:
    """Name to unit: of the bases, of the prefixed ones, of the others."""
    units: dict[str, str] = {}
    for base, names in _BASES.items():
        for prefix, name in product(("", *_PREFIXES), names.split()[1:]):
            units[prefix + name] = prefix + base
    del units["second"]  # also an ordinal
    others = {name: unit for unit, names in _OTHERS.items() for name in names.split()}
    return units | others


_UNITS = _units()
_QUALIFIERS = {
    name: qualifier
    for qualifier, names in {
        "fluid": "fluid fl",
        "square": "square sq",
        "cubic": "cubic cu",
        "nautical": "nautical",
        "troy": "troy",
        "metric": "metric",
        "imperial": "imperial",
    }.items()
    for name in names.split()
}
"""Before a unit they make another one of it."""
_AMBIGUOUS = wordset("a b s t v w us pm pt")
_SYMBOLS = {
    letter + symbol: _UNITS.get(letter + symbol, prefix + base)
    for prefix, letter in (("", ""), ("micro", "\u03bc"), ("micro", "mc"), *_PREFIXES.items())
    for base, names in _BASES.items()
    for symbol in names.split()[:1]
    if letter + symbol not in _AMBIGUOUS
}
"""What stands for a unit right behind a number alone. Whether `m` is milli or mega, the guard of
letters tells."""
_BEHIND_NUMBER = re.compile(r"\d\s?([^\W\d_]{1,4})(?![^\W_])")
_SIGNS = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee", "%": "percent"}
_SIGNS |= {"°C": "celsius", "°F": "fahrenheit"}
_SIGN = re.compile("|".join(map(re.escape, _SIGNS)))


def _read(text: Text) -> frozenset[str]:
    named = {_unit(*pair) for pair in pairwise(("", *text.words)) if pair[1] in _UNITS}
    behind = map(str.lower, _BEHIND_NUMBER.findall(text.source))
    named.update(_SYMBOLS[symbol] for symbol in behind if symbol in _SYMBOLS)
    signs = [unit for sign in _SIGN.findall(text.source) for unit in (_SIGNS[sign],)]
    if len(named.union(signs)) > len(named) + 1:
        named.add(" to ".join(signs))  # €10 to £
    return frozenset(named.union(signs))


def _unit(before: str, word: str) -> str:
    return f"{_QUALIFIERS.get(before, '')} {_UNITS[word]}".lstrip()


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "units"


UNITS = Guard(name="units", read=_read, compare=_compare)
