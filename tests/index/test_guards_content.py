"""Content words: what counts as a counterpart, and what as another order."""

import pytest

from index.guards.content import Difference, compare_content, read_content
from index.guards.text import read_text


def difference(a: str, b: str) -> Difference:
    return compare_content(read_content(read_text(a)), read_content(read_text(b)))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("how do I repair a bicycle", "how can I fix a bicycle"),
        ("the price of tea", "the tea price"),
        ("honey's boiling point", "the boiling point of honey"),
        ("cats and dogs", "dogs and cats"),
        ("hot water and cold water", "cold water and hot water"),
        ("In Rome, where can I swim?", "Where can I swim in Rome?"),
        ("best vegtable soup", "best vegetable soup"),
        ("a muddy footpath", "a muddy foot path"),
        ("tell me about volcanoes please", "volcano"),
    ],
)
def test_the_same_words_turned_around_show_no_difference(a: str, b: str) -> None:
    found = difference(a, b)
    assert (found.exchanged, found.added, found.reordered) == (0, 0, False)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("did the wolf follow the shepherd", "did the shepherd follow the wolf"),
        ("trains from Bern to Milan", "trains from Milan to Bern"),
        ("the king of the castle's guard", "the guard of the king's castle"),
        ("get a code to use a card", "use a code to get a card"),
    ],
)
def test_other_roles_are_another_order(a: str, b: str) -> None:
    assert difference(a, b).reordered


@pytest.mark.parametrize(
    ("a", "b", "exchanged", "added"),
    [
        ("a wooden table", "a wooden chair", 1, 0),
        ("a table", "a round table", 0, 1),
        ("a wooden table", "a round glass chair", 2, 1),
        ("sugar", "", 0, 1),
        ("the desert here", "the dessert here", 1, 0),
        ("a high interest rate", "a high internet rate", 1, 0),
        ("a book on astronomy", "a book on astrology", 1, 0),
    ],
)
def test_words_without_counterpart_are_counted(a: str, b: str, exchanged: int, added: int) -> None:
    found = difference(a, b)
    assert (found.exchanged, found.added) == (exchanged, added)
    mirrored = difference(b, a)
    assert (mirrored.exchanged, mirrored.added) == (exchanged, added)
