"""What is asked for between two questions, and why."""

import pytest

from index.embedders.calibration import AS_IT_IS, calibration_of
from index.verdict import Accepted, judge, raised_by, rules_for
from proxy.explaining.nearness import nearness

E5 = calibration_of("multilingual-e5-small")
PAIRS = {
    "same": ("How can I clean a kettle?", "how can one clean a kettle"),
    "exchanged": ("how do I clean a white kettle", "how do I clean a white oven"),
    "added": ("how do I clean a kettle at home", "how do I clean an old kettle at home"),
    "narrowed": ("how do I clean a kettle", "how do I clean a kettle with vinegar"),
    "decided": ("is it safe to clean a kettle", "is it safe to clean a rusty kettle"),
    "reworded": ("what do people put into a kettle", "which powder is best for old ovens"),
    "slip": ("how do I clean a kettle", "how do I claen a kettle"),
}


def near_of(pair, rules, *, similarity=0.5):
    query, prompt = pair
    return nearness(query, key="k", prompt=prompt, similarity=similarity, rules=rules)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("calibration", [AS_IT_IS, E5], ids=["minilm", "e5"])
@pytest.mark.parametrize("raised", [0.0, 0.02])
@pytest.mark.parametrize("threshold", [None, 0.97])
def test_what_is_asked_for_is_where_the_verdict_turns(kind, calibration, raised, threshold):
    pair = PAIRS[kind]
    rules = rules_for("strict", calibration=calibration, threshold=threshold)
    rules = raised_by(rules, raised)
    near = near_of(pair, rules)
    assert near.why[0].word == kind
    if near.asked is None:
        assert raised, "only what is raised above 1 is never met"
        return
    above, below = min(near.asked + 1e-4, 1.0), near.asked - 1e-4
    assert isinstance(judge(*pair, similarity=above, rules=rules), Accepted)
    assert not isinstance(judge(*pair, similarity=below, rules=rules), Accepted)


def test_why_so_much_is_asked_for_names_words_audits_and_embedder():
    rules = raised_by(rules_for("strict", calibration=E5), 0.02)
    near = near_of(PAIRS["exchanged"], rules, similarity=0.96)
    assert near.reason == "similarity"
    assert near.asked == 0.982
    assert [(one.word, one.meaning) for one in near.why] == [
        ("exchanged", "a word stands for another one: 0.92"),
        ("tightened", "audits found wrong answers: 0.02 more"),
        ("calibration", "of this embedder 0.9820 is worth no more than 0.94"),
    ]


def test_where_a_guard_tells_two_apart_no_similarity_is_named():
    near = near_of(("boil 3 eggs", "boil 4 eggs"), rules_for("strict"), similarity=0.99)
    assert (near.reason, near.asked, near.why) == ("numbers", None, ())


def test_words_in_another_order_are_never_near_enough():
    pair = ("does a cat chase a dog", "does a dog chase a cat")
    near = near_of(pair, rules_for("strict", guards={"roles": False}), similarity=0.99)
    assert (near.reason, near.asked) == ("word_order", None)
    assert [one.word for one in near.why] == ["reordered"]


def test_of_a_text_and_itself_nothing_is_asked():
    near = near_of(("why", "why"), rules_for("strict"))
    assert (near.accepted, near.asked, near.why) == (True, 0.0, ())
