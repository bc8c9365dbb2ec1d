"""What is forgotten of epochs that are over, and that it changes nothing."""

import random
from collections import Counter

import msgspec
import pytest

from index.audit.epoch import folded, present
from index.audit.label import LABELS
from index.audit.standing import Terms, due, hits_field, label_field, reported_field, stand

OPEN = Terms(max_error=0.01, confidence=0.95, misses=0.1, starts_open=True)
SHADOW = msgspec.structs.replace(OPEN, starts_open=False)


def fold(totals, terms):
    """As a store adds: what comes to nothing is forgotten."""
    totals = Counter(totals)
    totals.update(folded(totals, starts_open=terms.starts_open))
    return +totals


def settle(totals, terms, *, folds=False):
    totals = Counter(totals)
    while (field := due(totals, terms)) is not None:
        totals[field] += 1
    return fold(totals, terms) if folds else totals


def some_labels(rng, standing):
    """Good or bad times, of which most end an epoch."""
    good, bad = rng.choice([(1000, 0), (4000, 1), (600, 60), (100, 30), (50, 1)])
    step = rng.randrange(3)
    yield label_field(standing, "agree", step=step), good
    yield label_field(standing, rng.choice(LABELS), step=step), bad
    yield hits_field(standing), good + bad
    yield reported_field(standing.epoch), rng.choice((0, 0, 0, bad))


@pytest.mark.parametrize("terms", [OPEN, SHADOW], ids=["open", "shadow"])
def test_folding_what_is_over_changes_no_standing(terms):
    rng = random.Random(5)
    whole, brief = Counter(), Counter()
    states = set()
    for _ in range(120):
        labels = [*some_labels(rng, stand(whole, terms))]
        for field, count in labels:
            whole[field] += count
            brief[field] += count
        whole, brief = settle(whole, terms), settle(brief, terms, folds=True)
        assert stand(brief, terms) == stand(whole, terms)
        states.add(stand(whole, terms).state)
    assert stand(whole, terms).epoch > 40
    assert states >= {"open", "tightened", "closed"}
    assert len(brief) < 45 < len(whole)


def test_a_thousand_epochs_leave_no_more_fields_than_ten():
    totals, most = Counter(), 0
    for epoch in range(1000):
        now = stand(totals, OPEN)
        assert now.epoch == epoch
        totals[label_field(now, "agree", step=2)] += 1000
        totals = settle(totals, OPEN, folds=True)
        most = max(most, len(totals))
    assert most < 10
    assert stand(totals, OPEN).state == "open"


def test_nothing_is_folded_where_nothing_is_over():
    assert folded({}, starts_open=True) == {}
    assert folded({"0.agree.2": 4, "pairs": 1, "told.3": 2}, starts_open=True) == {}
    two = {"0.agree.2": 1000, "0.again.0": 1, "1.agree.2": 3}
    assert folded(two, starts_open=True) == {}, "the last epoch goes on to count"


def test_what_comes_late_of_an_epoch_that_is_over_is_folded_and_changes_nothing():
    totals = settle({"0.stored_only.2": 30, "0.agree.2": 170}, OPEN)
    totals["1.agree.0"] += 4000
    totals = settle(totals, OPEN, folds=True)
    now = stand(totals, OPEN)
    assert now.epoch == 2
    late = Counter({"0.stored_only.2": 3, "0.again.2": 1, "0.reported": 1, "0.hits": 9})
    assert stand(totals + late, OPEN) == now
    assert fold(totals + late, OPEN) == totals


def test_processes_that_fold_at_once_or_without_having_heard_of_all_agree():
    early = settle({"0.stored_only.2": 30, "0.agree.2": 170}, SHADOW)
    early["0.agree.2"] += 4000
    early = settle(early, SHADOW)
    early.update({f"{stand(early, SHADOW).epoch}.stored_only.2": 60})
    early = settle(early, SHADOW)
    late = Counter(early)
    late[f"{stand(late, SHADOW).epoch}.agree.2"] += 4000
    late = settle(late, SHADOW)
    now = stand(late, SHADOW)
    for ways in ([early, late], [late, early], [late, late], [early, early, late]):
        totals = Counter(late)
        for seen in ways:
            totals.update(folded(seen, starts_open=False))
            totals = +totals
            assert stand(totals, SHADOW) == now


def test_of_two_beginnings_the_stricter_counts():
    def epoch(*fields):
        return present(dict.fromkeys(fields, 1), starts_open=True)

    serving, not_serving = "7.base.0.111", "7.base.0.010"
    assert epoch(serving).serves
    assert not epoch(serving, not_serving).serves
    assert epoch(serving, "7.base.2.111").step == 2
    assert epoch(not_serving, "8.base.1.111").number == 8
