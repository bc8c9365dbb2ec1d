"""The meters against their definition: never more than the limit in a minute, and no less."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.tenancy.ratelimit import WINDOW_S, correct, take


def test_a_minutes_worth_passes_at_once_and_the_next_waits_for_its_share():
    empty_at = 0.0
    for left in reversed(range(6)):
        reading = take(1, limit=6, empty_at=empty_at, now=100.0)
        assert reading.passed
        assert reading.remaining == left
        empty_at = reading.empty_at
    refused = take(1, limit=6, empty_at=empty_at, now=100.0)
    assert not refused.passed
    assert refused.retry_after_s == pytest.approx(10)
    assert refused.reset_s == pytest.approx(60)
    assert refused.empty_at == empty_at, "who is refused is not counted"
    assert take(1, limit=6, empty_at=empty_at, now=110.0).passed


def test_more_than_a_whole_limit_passes_an_empty_meter_and_is_paid_for_after():
    reading = take(250, limit=100, empty_at=0.0, now=100.0)
    assert reading.passed
    assert reading.reset_s == pytest.approx(150)
    after = take(1, limit=100, empty_at=reading.empty_at, now=100.0)
    assert after.retry_after_s == pytest.approx(90.6)
    assert not take(250, limit=100, empty_at=101.0, now=100.0).passed, "only an empty one"


def test_a_correction_gives_back_and_takes_more():
    empty_at = take(50, limit=60, empty_at=0.0, now=100.0).empty_at
    assert correct(-20, limit=60, empty_at=empty_at, now=100.0) == pytest.approx(130)
    assert correct(40, limit=60, empty_at=empty_at, now=100.0) == pytest.approx(190)
    assert correct(-500, limit=60, empty_at=empty_at, now=100.0) == 100, "never below empty"
    assert correct(-20, limit=60, empty_at=empty_at, now=500.0) == 500, "too late to matter"


@given(
    limit=st.integers(1, 500),
    steps=st.lists(
        st.tuples(st.floats(0, 30, allow_subnormal=False), st.integers(1, 600)), max_size=60
    ),
)
def test_never_more_than_a_burst_and_the_rate_passes(limit, steps):
    now, empty_at = 1000.0, 0.0
    passed: list[tuple[float, int]] = []
    for pause_s, units in steps:
        now += pause_s
        reading = take(units, limit=limit, empty_at=empty_at, now=now)
        if reading.passed:
            empty_at = reading.empty_at
            passed.append((now, units))
        else:
            later = take(
                units, limit=limit, empty_at=empty_at, now=now + reading.retry_after_s + 1e-6
            )
            assert later.passed, "what is promised is kept"
        assert 0 <= reading.remaining <= limit
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            between_s = passed[last][0] - passed[first][0]
            units = sum(min(units, limit) for _, units in passed[first : last + 1])
            allowed = limit * (1 + between_s / WINDOW_S)
            assert units <= allowed + 1e-3 or math.isclose(units, allowed, rel_tol=1e-6)
