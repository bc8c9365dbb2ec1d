"""A policy's own expressions, and their one bound."""

import pytest

from index.volatility import ownpattern
from index.volatility.ownpattern import any_in, own_pattern

HARMLESS = own_pattern("canteen")
SLOW = own_pattern(r"(a|a)+$")
TEXT = "a" * 40 + "b"


def test_one_that_is_found_is_enough() -> None:
    assert any_in((own_pattern("menu"), HARMLESS), "the Canteen")
    assert not any_in((own_pattern("menu"), HARMLESS), "the bar")
    assert not any_in((), "the canteen")


def test_what_takes_too_long_is_not_told() -> None:
    with pytest.raises(TimeoutError):
        any_in((SLOW, HARMLESS), TEXT)


def test_the_bound_is_for_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter((0.0, 0.0, ownpattern.SECONDS))
    monkeypatch.setattr("index.volatility.ownpattern.time.process_time", lambda: next(spent))
    with pytest.raises(TimeoutError):
        any_in((HARMLESS, HARMLESS), TEXT)
