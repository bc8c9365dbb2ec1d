"""Bounds on the share of wrong hits, against simulated judges."""

import math
import random

import pytest
from audit_traffic import label

from index.audit.bounds import evidence_above, evidence_below, lower, upper
from index.audit.label import Counts

NOTHING = Counts()
OF = {"expected": 0.05}
UNDER = {"expected": 0.0025, "misses": 0.1}


def counted(rng, *, wrong, error, num_labels):
    """Counts after each label."""
    seen = dict.fromkeys(("stored_only", "fresh_only", "all_differ", "agree"), 0)
    for _ in range(num_labels):
        seen[label(rng, is_wrong=rng.random() < wrong, error=error)] += 1
        yield Counts(**seen)


def test_without_labels_nothing_is_known():
    assert lower(NOTHING, alpha=0.05, **OF) == 0
    assert upper(NOTHING, alpha=0.05, **UNDER) == 1
    assert evidence_above(NOTHING, 0.01, **OF) == pytest.approx(0)
    assert evidence_below(NOTHING, 0.01, **UNDER) == 0


def test_bounds_close_in_on_the_share():
    counts = Counts(stored_only=100, agree=1900)
    assert 0.03 < lower(counts, alpha=0.05, **OF) < 0.05
    assert 0.05 < upper(counts, alpha=0.05, **UNDER) < 0.09


def test_five_hundred_right_hits_prove_one_percent():
    assert upper(Counts(agree=500), alpha=0.05, **UNDER) <= 0.01
    assert upper(Counts(agree=100), alpha=0.05, **UNDER) > 0.01


def test_what_a_judge_may_miss_widens_the_upper_bound():
    counts = Counts(stored_only=2, agree=500)
    sharp = upper(counts, alpha=0.05, expected=0.0025, misses=0.0)
    dull = upper(counts, alpha=0.05, expected=0.0025, misses=0.5)
    assert dull == pytest.approx(2 * sharp, rel=1e-6)


def test_noise_of_fresh_answers_excuses_the_stored_one():
    quiet = Counts(stored_only=20, agree=280)
    noisy = Counts(stored_only=20, fresh_only=40, agree=240)
    assert lower(quiet, alpha=0.05, **OF) > 0.02
    assert lower(noisy, alpha=0.05, **OF) == 0


def test_answers_that_all_differ_raise_only_the_upper_bound():
    unclear = Counts(all_differ=50, agree=250)
    assert lower(unclear, alpha=0.05, **OF) == 0
    assert upper(unclear, alpha=0.05, **UNDER) > 0.15


@pytest.mark.parametrize("counts", [Counts(stored_only=9, agree=300), Counts(all_differ=300)])
def test_a_bound_is_where_the_evidence_passes_its_limit(counts):
    limit = math.log(1 / 0.05)
    low, high = lower(counts, alpha=0.05, **OF), upper(counts, alpha=0.05, **UNDER)
    assert evidence_above(counts, low + 1e-6, **OF) < limit
    if low:
        assert evidence_above(counts, low - 1e-6, **OF) >= limit
    if high < 1:
        assert evidence_below(counts, high + 1e-6, **UNDER) >= limit
        assert evidence_below(counts, high - 1e-6, **UNDER) < limit


@pytest.mark.parametrize("error", [0.0, 0.03])
def test_the_truth_is_hardly_ever_ruled_out_whenever_one_looks(error):
    """Over 200 runs and all of their moments; 5 % may fail, the bounds are wider than that."""
    rng, limit, wrong = random.Random(7), math.log(1 / 0.05), 0.02
    above = below = 0
    for _ in range(200):
        runs = list(counted(rng, wrong=wrong, error=error, num_labels=300))
        above += any(evidence_above(one, wrong, expected=0.1) >= limit for one in runs)
        below += any(
            evidence_below(one, wrong, misses=0.1, expected=0.005) >= limit for one in runs
        )
    assert above <= 10
    assert below <= 10
