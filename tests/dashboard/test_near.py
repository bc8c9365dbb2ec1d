"""What another threshold would make of a near miss."""

from proxy.dashboard.near import ladder_of, served_up_to
from proxy.meaning import rules_of_tier
from proxy.outcome import Near
from proxy.settings.semantic import Semantic

ASKED = "How do I renew my basic plan?"
STORED = "How do I renew the basic plan?"


def up_to(prompt, stored, similarity, **tier):
    semantic = Semantic(**tier)
    near = Near(key="0" * 64, prompt=stored, similarity=similarity, reason="similarity")
    return served_up_to(prompt, near, semantic, tuple(ladder_of(semantic)))


def test_a_pair_that_only_lacks_similarity_is_served_up_to_its_own():
    assert up_to(ASKED, STORED, 0.807, profile="intent", threshold=0.9) == 0.8


def test_a_pair_that_a_guard_refuses_is_served_at_none():
    assert up_to("What is 2 plus 2?", "What is 2 plus 3?", 0.85) is None


def test_a_pair_that_is_served_now_was_refused_for_what_no_threshold_changes():
    assert rules_of_tier(Semantic()).thresholds.same < 0.99
    assert up_to(STORED, STORED, 0.99) is None
