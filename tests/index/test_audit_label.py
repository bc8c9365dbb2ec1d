"""Three comparisons, one label."""

import itertools

import pytest

from index.audit.label import LABELS, Counts, label_of


@pytest.mark.parametrize(
    ("first", "second", "fresh", "label"),
    [
        (True, True, True, "agree"),
        (False, False, True, "stored_only"),
        (False, True, False, "fresh_only"),
        (True, False, False, "fresh_only"),
        (False, False, False, "all_differ"),
        (True, True, False, "agree"),
        (True, False, True, "agree"),
        (False, True, True, "agree"),
    ],
)
def test_the_odd_one_out_names_the_label(first, second, fresh, label):
    assert label_of(first=first, second=second, fresh=fresh) == label


def test_noise_alone_accuses_the_stored_answer_half_as_often_as_the_two_fresh_ones():
    """The symmetry that the lower bound stands on: every permutation of three equal answers."""
    verdicts = [
        label_of(first=a, second=b, fresh=c)
        for a, b, c in itertools.product([True, False], repeat=3)
    ]
    assert 2 * verdicts.count("stored_only") == verdicts.count("fresh_only")


def test_counts_add_up():
    one, other = Counts(stored_only=1, agree=2), Counts(agree=3, all_differ=1)
    assert one + other == Counts(stored_only=1, agree=5, all_differ=1)
    assert (one + other).total == 7
    assert (one + other).suspect == 2
    assert set(LABELS) == set(Counts.__struct_fields__)
