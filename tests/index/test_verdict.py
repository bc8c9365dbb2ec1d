"""The verdict over guards, content and similarity."""

import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.demand import Thresholds
from index.embedders.calibration import Calibration
from index.verdict import Accepted, Profile, Refused, judge, raised_by, rules_for

STRICT = rules_for("strict")
_NUMERIC = ("1", "0", "9" * 31, "-", ".", ",", ":", "e", "²", "½", " ", "k", " five", " million")
TEXTS = st.text(max_size=60) | st.lists(st.sampled_from(_NUMERIC), max_size=12).map("".join)


def test_the_same_text_is_accepted_whatever_it_says() -> None:
    text = "never 3 of 'em"
    assert judge(text, text, similarity=1.0, rules=STRICT) == Accepted(1.0)


def test_a_paraphrase_over_the_threshold_is_accepted_with_its_similarity() -> None:
    verdict = judge("how do I fix a tap", "how can I repair a tap", similarity=0.92, rules=STRICT)
    assert verdict == Accepted(0.92)


def test_a_similarity_under_the_threshold_is_refused_as_such() -> None:
    verdict = judge("how do I fix a tap", "how can I repair a tap", similarity=0.8, rules=STRICT)
    assert verdict == Refused("similarity")


def test_more_similarity_is_asked_for_in_what_it_is_worth() -> None:
    crowded = Calibration(((-1.0, -1.0), (0.9, 0.5), (1.0, 1.0)))
    rules = rules_for("strict", calibration=crowded)
    asked, stored = "how do I fix a tap", "how can I repair a tap"
    assert judge(asked, stored, similarity=0.985, rules=rules) == Accepted(0.985)  # worth .925
    assert judge(asked, stored, similarity=0.985, rules=raised_by(rules, 0.01)) == Accepted(0.985)
    assert judge(asked, stored, similarity=0.985, rules=raised_by(rules, 0.02)) == Refused(
        "similarity"
    )


def test_a_similarity_that_is_no_number_is_refused() -> None:
    verdict = judge("bake bread", "paint fences", similarity=float("nan"), rules=STRICT)
    assert verdict == Refused("similarity")


def test_a_long_number_and_a_short_one_are_no_fault_of_the_judge() -> None:
    digits = "123456789012345678901234567890"
    verdict = judge(f"what is {digits} + 7", f"what is {digits} + 8", similarity=0.99, rules=STRICT)
    assert verdict == Refused("numbers")


def test_a_guard_refuses_however_similar_the_texts_are() -> None:
    verdict = judge("boil for 3 minutes", "boil for 4 minutes", similarity=0.999, rules=STRICT)
    assert verdict == Refused("numbers")


def test_a_guard_that_is_switched_off_does_not_refuse() -> None:
    rules = msgspec.structs.replace(STRICT, guards=STRICT.guards - {"numbers"})
    verdict = judge("boil for 3 minutes", "boil for 4 minutes", similarity=0.999, rules=rules)
    assert verdict == Accepted(0.999)


def test_an_exchanged_word_asks_for_more_similarity() -> None:
    a, b = "how do I paint a fence", "how do I paint a shed"
    assert judge(a, b, similarity=0.915, rules=STRICT) == Refused("content")
    assert judge(a, b, similarity=0.99, rules=STRICT) == Accepted(0.99)


def test_further_words_ask_for_more_in_chinese_alone() -> None:
    few, many = "怎么做蛋糕", "怎么做蛋糕才松软好吃"
    assert judge(few, many, similarity=0.98, rules=STRICT) == Refused("content")
    a, b = "how do I keep a lawn neat", "how do I keep a lawn neat, green and dense"
    assert judge(a, b, similarity=0.98, rules=STRICT) == Accepted(0.98)


def test_several_other_words_ask_for_less_similarity_than_one_exchanged() -> None:
    stored = "how do I train a puppy to walk calmly"
    exchanged, reworded = (
        stored.replace("puppy", "kitten"),
        "how do I teach a young dog to walk calmly",
    )
    rules = rules_for("balanced")
    assert judge(exchanged, stored, similarity=0.88, rules=rules) == Refused("content")
    assert judge(reworded, stored, similarity=0.88, rules=rules) == Accepted(0.88)


@pytest.mark.parametrize("name", msgspec.structs.fields(Thresholds), ids=lambda each: each.name)
def test_strict_asks_for_no_less_than_balanced(name: msgspec.structs.FieldInfo) -> None:
    strict, balanced = STRICT.thresholds, rules_for("balanced").thresholds
    assert getattr(strict, name.name) >= getattr(balanced, name.name)


def test_a_rare_word_is_no_other_word_for_a_rare_one() -> None:
    a, b = "is zopiclone bad for me", "is bisoprolol bad for me"
    assert judge(a, b, similarity=0.97, rules=STRICT) == Refused("content")


@pytest.mark.parametrize(
    "text",
    [
        "All lamps glow, but the fan is still",
        "Every time I dive, but sink, what helps",
        "None of the boats leak, but the rafts do",
        "I have no map, but want to sail",
        "everyone, but Olga rowed",
    ],
)
def test_a_comma_alone_never_makes_another_word_of_but(text: str) -> None:
    without = text.replace(", but", " but")
    assert judge(text, without, similarity=0.95, rules=STRICT) == Accepted(0.95)


def test_other_roles_are_refused_as_word_order() -> None:
    verdict = judge(
        "did the owl see the mouse", "did the mouse see the owl", similarity=0.99, rules=STRICT
    )
    assert verdict == Refused("word_order")


def test_another_order_may_pass_where_other_words_differ_too() -> None:
    a, b = "why did traders leave the old port", "why did the old port lose its traders"
    assert judge(a, b, similarity=0.915, rules=STRICT) == Refused("word_order")
    assert judge(a, b, similarity=0.98, rules=STRICT) == Accepted(0.98)


@pytest.mark.parametrize(
    "mistyped",
    ["how do I repiar a kettle", "howdo I repair a kettle", "how do I repair a kettle?!"],
)
def test_a_slip_of_the_keyboard_is_served_though_the_embedding_moved(mistyped: str) -> None:
    verdict = judge(mistyped, "how do I repair a kettle", similarity=0.7, rules=STRICT)
    assert verdict == Accepted(0.7)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("what is a trial balance", "what is a trail balance"),
        ("where is the 12th item", "where is the 21th item"),
        ("what is 2 - 1 in maths", "what is 2 1 in maths"),
        ("convert .5 miles to km", "convert 5 miles to km"),
        ("why is host 192.168.1.11 down", "why is host 192.168.11.1 down"),
        ("write 1e-5 as a decimal number", "write 1e5 as a decimal number"),
        ("is ratio 2:1 better", "is ratio 1:2 better"),
        ("calculate 10!", "calculate 10"),
        ("what is the value of 5! in maths", "what is the value of 5 in maths"),
        ("what changed in 1.2.3", "what changed in 123"),
        ("what is 1,5 plus 2", "what is 15 plus 2"),
        ("what is y' in the equation", "what is y in the equation"),
        (
            "what prints:\nfor i in x:\n    n += i\n    p(n)",
            "what prints:\nfor i in x:\n    n += i\np(n)",
        ),
        ("what is 10² in maths", "what is 102 in maths"),
        ("a typical case of flu", "atypical case of flu"),
    ],
)
def test_a_slip_that_could_be_meant_is_refused(a: str, b: str) -> None:
    assert isinstance(judge(a, b, similarity=0.7, rules=STRICT), Refused)


def test_the_users_threshold_is_the_least_that_is_ever_asked() -> None:
    rules = rules_for("strict", threshold=0.97)
    a, b = "how do I fix a tap", "how can I repair a tap"
    assert judge(a, b, similarity=0.96, rules=rules) == Refused("similarity")
    assert judge(a, b, similarity=0.98, rules=rules) == Accepted(0.98)


def test_intent_looks_at_numbers_and_negation_alone() -> None:
    rules = rules_for("intent")
    a, b = "please cancel my card", "cancel her card now"
    assert isinstance(judge(a, b, similarity=0.85, rules=rules), Accepted)
    assert judge("cancel card 1", "cancel card 2", similarity=0.99, rules=rules) == Refused(
        "numbers"
    )
    assert judge("do cancel it", "do not cancel it", similarity=0.99, rules=rules) == Refused(
        "negation"
    )


@pytest.mark.parametrize("profile", ["strict", "balanced", "intent"])
@given(a=TEXTS, b=TEXTS, similarity=st.floats(-1, 1))
def test_any_two_texts_get_one_verdict_whoever_came_first(
    profile: Profile, a: str, b: str, similarity: float
) -> None:
    rules = rules_for(profile)
    verdict = judge(a, b, similarity=similarity, rules=rules)
    assert judge(b, a, similarity=similarity, rules=rules) == verdict


def test_judging_needs_neither_numpy_nor_faiss() -> None:
    code = (
        "import sys, index.verdict, index.volatility.rules, index.semantic;"
        "sys.exit(bool({'numpy', 'faiss', 'onnxruntime', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
