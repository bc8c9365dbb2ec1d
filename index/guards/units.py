"""Units of measure and money."""

from index.guards.guard import Guard
from index.guards.text import Text

_UNITS = {
    name: unit
    for unit, names in {
        "kilogram": "kg kgs kilo kilos kilogram kilograms kilogrammes",
        "gram": "gram grams grammes",
        "pound": "lb lbs pound pounds",
        "ounce": "oz ounce ounces",
        "stone": "stones",
        "kilometre": "km kms kilometer kilometers kilometre kilometres",
        "metre": "meter meters metre metres",
        "centimetre": "cm cms centimeter centimeters centimetre centimetres",
        "millimetre": "mm millimeter millimeters millimetre millimetres",
        "mile": "mile miles mi",
        "foot": "foot feet ft",
        "inch": "inch inches",
        "yard": "yards",
        "litre": "liter liters litre litres",
        "millilitre": "ml milliliter milliliters millilitre millilitres",
        "gallon": "gallon gallons",
        "cup": "cups",
        "celsius": "celsius centigrade",
        "fahrenheit": "fahrenheit",
        "kelvin": "kelvin",
        "mph": "mph",
        "kmh": "kmh kph",
        "percent": "percent percentage pct",
        "byte": "byte bytes",
        "kilobyte": "kb kilobyte kilobytes",
        "megabyte": "mb megabyte megabytes",
        "gigabyte": "gb gigabyte gigabytes",
        "terabyte": "tb terabyte terabytes",
        "watt": "watt watts",
        "volt": "volt volts",
        "amp": "amps ampere amperes",
        "dollar": "dollar dollars usd bucks",
        "euro": "euro euros eur",
        "sterling": "gbp sterling",
        "rupee": "rupee rupees inr rs",
        "yen": "yen jpy",
        "yuan": "yuan rmb cny",
        "minute": "minute minutes",
        "second": "seconds",
        "hour": "hour hours hourly",
        "day": "day days daily",
        "week": "week weeks weekly",
        "month": "month months monthly",
        "year": "year years yearly annual annually annum",
        "decade": "decade decades",
        "century": "century centuries",
        "calorie": "calorie calories kcal",
        "acre": "acre acres",
        "hectare": "hectare hectares",
    }.items()
    for name in names.split()
}
_SIGNS = {"$": "dollar", "€": "euro", "£": "sterling", "¥": "yen", "₹": "rupee", "%": "percent"}
_SIGNS |= {"°C": "celsius", "°F": "fahrenheit"}


def _read(text: Text) -> frozenset[str]:
    named = {_UNITS[word] for word in text.words if word in _UNITS}
    return frozenset(named | {unit for sign, unit in _SIGNS.items() if sign in text.source})


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "units"


UNITS = Guard(name="units", read=_read, compare=_compare)
