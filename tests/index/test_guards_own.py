"""Rules of a policy's own."""

import pytest

from index.guards.own import rule_of_pattern, rule_of_words
from index.verdict import OWN, Accepted, Refused, judge, rules_for


@pytest.mark.parametrize(
    ("a", "b", "differs"),
    [
        ("the basic plan", "the premium plan", True),
        ("the basic plan", "the Basic plan", False),
        ("the basic plan", "the plan", True),
        ("the basics", "the rest", False),
        ("basic or premium", "premium or basic", False),
        ("上海店几点开门", "北京店几点开门", True),
    ],
)
def test_prompts_must_agree_in_the_words_of_a_rule(a: str, b: str, differs: bool) -> None:
    rule = rule_of_words(["basic ", " premium", "上海", "北京"])
    assert rule.differs(a, b) is rule.differs(b, a) is differs


def test_matches_of_a_pattern_are_compared() -> None:
    rule = rule_of_pattern(r"\b[A-Z]{2}-\d+\b")
    assert rule.differs("status of ab-12", "status of ab-13")
    assert not rule.differs("status of AB-12", "ab-12 status")


def test_a_bad_pattern_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="position 1"):
        rule_of_pattern("(")


def test_a_pattern_that_takes_too_long_keeps_two_prompts_apart() -> None:
    rule = rule_of_pattern(r"(a|a)+$")
    slow = "a" * 40 + "b"
    assert rule.differs(slow, slow + " too")
    assert rule.differs("short", slow)
    assert not rule.differs("short", "and long")


def test_an_own_rule_refuses_on_every_profile_and_between_spellings_too() -> None:
    own = (rule_of_words(["basic", "premium"]),)
    a, b = "does the basic plan renew", "does the premium plan renew"
    for profile in ("strict", "balanced", "intent"):
        verdict = judge(a, b, similarity=0.999, rules=rules_for(profile, own=own))
        assert isinstance(verdict, Refused)
    spelt = rules_for("strict", own=(rule_of_pattern("colour"),))
    verdict = judge("which colour is it", "which colo ur is it", similarity=0.99, rules=spelt)
    assert verdict == Refused(OWN)


def test_a_policy_switches_guards_off_and_on() -> None:
    a, b = "is the mill open", "was the mill open"
    off = rules_for("strict", guards={"tense": False})
    assert judge(a, b, similarity=0.99, rules=off) == Accepted(0.99)
    on = rules_for("intent", guards={"tense": True})
    assert judge(a, b, similarity=0.99, rules=on) == Refused("tense")


def test_a_higher_threshold_keeps_the_profiles_in_their_order() -> None:
    for least in (0.85, 0.92, 0.98):
        strict = rules_for("strict", threshold=least).thresholds
        balanced = rules_for("balanced", threshold=least).thresholds
        assert strict.exchanged >= balanced.exchanged
        assert strict.added >= balanced.added


def test_a_higher_threshold_narrows_all_others_in_proportion() -> None:
    default, raised = rules_for("strict").thresholds, rules_for("strict", threshold=0.97).thresholds
    assert raised.same == 0.97
    assert raised.exchanged == pytest.approx(1 - (1 - default.exchanged) / 3)
    assert rules_for("strict", threshold=0.5).thresholds.exchanged == default.exchanged
