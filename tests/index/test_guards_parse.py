"""What it takes to read a text for all guards."""

import time

import pytest

from index.guards.parse import parse

SHORT, LONG = 256, 4096
UNITS = {
    "one long word": "a",
    "signs": "#",
    "words and signs": "a(",
    "brackets": "[",
    "indices": "a[",
    "hyphens": "-a",
    "stops": ".",
    "dotted names": "a.",
    "addresses": "a@",
    "open quotes": "\u201c",
    "spaces": " ",
    "lines": "\n ",
    "sums": "1 + ",
    "names": "Ab ab ",
    "denials": "not the ",
    "scales": "k ",
    "namesakes": "zoom moon ",
    "sentences": "no zoom. ",
}


def seconds(text: str) -> float:
    """Processor time of the quickest of three readings."""
    taken = []
    for _ in range(3):
        parse.cache_clear()
        before = time.process_time()
        parse(text)
        taken.append(time.process_time() - before)
    return min(taken)


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS.keys())
@pytest.mark.parametrize("end", ["", "\x01"], ids=["plain", "spoilt at the end"])
def test_reading_takes_longer_with_the_length_of_a_text_and_not_with_its_square(
    unit: str, end: str
) -> None:
    short, long = (unit * (length // len(unit)) + end for length in (SHORT, LONG))
    # A ratio of two times in one process, a quarter of the way from 16 (the length) to 256.
    assert seconds(long) / seconds(short) < 4 * LONG / SHORT
