"""Word lists that are read into tables: nothing in them is said twice, or says nothing."""

from collections import Counter
from itertools import product

import pytest

from index.guards.antonyms import _GROUPS as ANTONYMS
from index.guards.known import is_known
from index.guards.stem import stem
from index.guards.synonyms import _GROUPS as SYNONYMS


def test_a_synonym_stands_in_one_group_and_no_group_is_of_one_word() -> None:
    groups = [{stem(word) for word in group.split()} for group in SYNONYMS.split("|")]
    assert [group for group in groups if len(group) < 2] == []
    counts = Counter(word for group in groups for word in group)
    assert [word for word, count in counts.items() if count > 1] == []


def test_two_opposites_are_told_once() -> None:
    pairs = (pair.partition(":") for pair in ANTONYMS.split())
    counts = Counter(
        frozenset(both)
        for left, _, right in pairs
        for both in product(left.split(","), right.split(","))
    )
    assert [pair for pair, count in counts.items() if count > 1] == []


@pytest.mark.parametrize(
    ("word", "known"),
    [("dessert", True), ("desserts", True), ("desert", True), ("desret", False), ("c++", True)],
)
def test_a_word_is_known_in_each_of_its_forms(word: str, known: bool) -> None:
    assert is_known(word) is known
