"""Volatile and personal prompts, and stable ones that look like them."""

import pytest

from index.volatility.rules import RULES, SLOW, patterns_of, volatile, volatile_by, volatile_rule


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("Will it rain in Bergen?", "volatile"),
        ("What's the weather like?", "volatile"),
        ("what time is it", "volatile"),
        ("what is the price of gold", "volatile"),
        ("how many euros is 20 dollars in euros", "volatile"),
        ("who is the prime minister of Norway?", "volatile"),
        ("who won the match", "volatile"),
        ("What are the latest headlines?", "volatile"),
        ("any concerts this weekend?", "volatile"),
        ("live scores of the tournament", "volatile"),
        ("roll the dice", "volatile"),
        ("What’s the current exchange rate?", "volatile"),
        ("what is my account balance", "personal"),
        ("how much did I spend on coffee", "personal"),
        ("is there a pharmacy near me", "personal"),
        ("今天天气怎么样", "volatile"),
        ("明天北京到上海的火车", "volatile"),
        ("黄金价格走势", "volatile"),
        ("我的快递到哪了", "personal"),
        ("给妈妈打电话", "personal"),
    ],
)
def test_a_prompt_that_will_not_hold_is_named_with_its_kind(prompt: str, kind: str) -> None:
    reason = volatile(prompt)
    assert reason is not None
    assert reason.startswith(kind + ":")


@pytest.mark.parametrize(
    "prompt",
    [
        "How do I reset my password?",
        "What is the boiling point of ethanol?",
        "What does the word weather mean?",
        "How do volcanoes form?",
        "Where do penguins live?",
        "Translate 'good morning' into French.",
        "Who was the first president of Brazil?",
        "how many episodes are in season 2",
        "Write a poem about the sea.",
        "番茄炒蛋怎么做",
        "请解释一下勾股定理",
        "",
    ],
)
def test_a_prompt_whose_answer_holds_is_not_named(prompt: str) -> None:
    assert volatile(prompt) is None


def test_material_inside_a_long_prompt_does_not_make_it_volatile() -> None:
    material = "It was today that the letter came. " * 40
    lead = "Summarise the following story in one sentence. " + "It begins in a small village. " * 8
    tail = "The end of the story is that everybody was content and went home. " * 4
    assert volatile(lead + material + tail) is None
    assert volatile(lead + material + tail + "And what is the weather?") is not None


def test_a_rule_of_the_users_own_is_found_after_the_default_ones() -> None:
    rule = volatile_rule("volatile:canteen", r"\bcanteen menu\b", unless=r"\bhistory\b")
    rules = (*RULES, rule)
    assert volatile_by(rules, "Canteen menu please") == "volatile:canteen"
    assert volatile_by(rules, "history of the canteen menu") is None


def test_a_pattern_of_the_policys_own_that_takes_too_long_is_not_kept() -> None:
    slow = "a" * 40 + "b"
    assert patterns_of([r"(a|a)+$"]).reason(slow) == SLOW
    assert patterns_of([r"\bcanteen\b"], never=[r"(a|a)+$"]).reason(slow) is None
    assert patterns_of([r"\bcanteen\b"], never=["b$"]).reason("the canteen b") is None
