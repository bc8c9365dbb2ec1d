"""Ranks: what is evicted, in which order, at which cost."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_entries import entry

from index.entry import Snapshot
from index.eviction import MAX_USES, Ranking, worth

SEEN = Snapshot(generation="g", sequence=0)


def test_answer_that_costs_more_to_make_again_is_worth_more():
    cheap = entry("a", SEEN, input_tokens=10, output_tokens=10, latency_ms=100)
    for dearer in ({"input_tokens": 500}, {"output_tokens": 500}, {"latency_ms": 60_000}):
        assert worth(entry("a", SEEN, **dearer), size_bytes=1000) > worth(cheap, size_bytes=1000)
    assert worth(cheap, size_bytes=1000) > worth(cheap, size_bytes=2000)


def test_answer_without_usage_is_still_worth_something():
    unknown = entry("a", SEEN, input_tokens=0, output_tokens=0, latency_ms=0)
    assert worth(unknown, size_bytes=1000) > 0


def test_least_worth_goes_first_and_uses_count():
    ranking = Ranking()
    low = ranking.add("low", worth=1.0)
    ranking.add("high", worth=3.0)
    ranking.add("middle", worth=2.0)
    for _ in range(3):
        ranking.touch(low)
    assert [ranking.victim().key for _ in range(3)] == ["middle", "high", "low"]


def test_popular_entry_that_is_not_used_any_more_goes_in_the_end():
    ranking = Ranking()
    once_popular = ranking.add("old", worth=1.0)
    for _ in range(20):
        ranking.touch(once_popular)
    evicted = []
    for number in range(200):
        ranking.add(str(number), worth=1.0)
        evicted.append(ranking.victim().key)
    assert "old" in evicted
    assert evicted.index("old") >= MAX_USES - 1


def test_removed_entry_is_no_victim():
    ranking = Ranking()
    ranking.remove(ranking.add("gone", worth=1.0))
    ranking.add("there", worth=2.0)
    assert ranking.victim().key == "there"


@given(st.integers(0, 2**32))
def test_victim_always_has_the_least_rank(seed):
    chance = random.Random(seed)
    ranking, alive = Ranking(), {}
    for number in range(300):
        what = chance.random()
        if what < 0.5 or not alive:
            alive[str(number)] = ranking.add(str(number), worth=chance.random())
        elif what < 0.75:
            ranking.touch(chance.choice(list(alive.values())))
        elif what < 0.9:
            ranking.remove(alive.pop(chance.choice(list(alive))))
        else:
            least = min(ranked.rank for ranked in alive.values())
            before = ranking.inflation
            victim = ranking.victim()
            assert alive.pop(victim.key).rank == least == pytest.approx(ranking.inflation)
            assert ranking.inflation >= before
        ranking.check_integrity(len(alive))
