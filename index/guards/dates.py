"""Months, weekdays, seasons and days named from today."""

from itertools import pairwise

from index.guards.guard import Guard
from index.guards.text import Text
from index.guards.wordset import wordset

_CERTAIN = {
    name: date
    for date, names in {
        "january": "january jan",
        "february": "february feb",
        "april": "april apr",
        "june": "june",
        "july": "july",
        "august": "august aug",
        "september": "september sept",
        "october": "october oct",
        "november": "november nov",
        "december": "december dec",
        "monday": "monday mondays",
        "tuesday": "tuesday tuesdays",
        "wednesday": "wednesday wednesdays",
        "thursday": "thursday thursdays",
        "friday": "friday fridays",
        "saturday": "saturday saturdays",
        "sunday": "sunday sundays",
        "weekend": "weekend weekends",
        "summer": "summer summers",
        "winter": "winter winters",
        "autumn": "autumn",
        "today": "today tonight",
        "tomorrow": "tomorrow",
        "yesterday": "yesterday",
        "morning": "morning mornings",
        "evening": "evening evenings",
        "noon": "noon",
        "midnight": "midnight",
        "night": "night nights",
        "afternoon": "afternoon",
        "bc": "bc bce",
        "am": "a.m",
    }.items()
    for name in names.split()
}
_CAPITALISED = {"March": "march", "May": "may", "Mon": "monday", "Fri": "friday", "Sat": "saturday"}
"""Common words too: dates only where a capital letter inside a sentence says so."""

_HALVES = wordset("am pm")
"""Of a day, behind a number."""
_PERIODS = wordset("week month year quarter time day decade century")
_RELATIVE = wordset("this next last previous coming past current")


def _read(text: Text) -> frozenset[str]:
    found = {_CERTAIN[word] for word in text.words if word in _CERTAIN}
    for raw, start in zip(text.raws, text.starts, strict=True):
        if raw in _CAPITALISED and not start:
            found.add(_CAPITALISED[raw])
    for first, second in pairwise(text.words):
        if second in _HALVES and first[0].isdigit():
            found.add(second)
        elif second in _PERIODS and first in _RELATIVE:
            found.add(f"{first} {second}")
    return frozenset(found)


def _compare(a: frozenset[str], b: frozenset[str]) -> str | None:
    return "dates"


DATES = Guard(name="dates", read=_read, compare=_compare)
