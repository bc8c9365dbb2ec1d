"""Streams over the whole path: real sockets on both sides."""

import asyncio
import contextlib
import json

import openai
import pytest
from misbehaving import LAST_CHUNK, STREAM, chunked, plain, serving
from running import (
    BEGIN,
    CONFIG,
    DONE,
    END,
    USAGE_CHUNK,
    chunk,
    completion,
    running,
    wants_stream,
)

CHAT = {"model": "test-1", "messages": [{"role": "user", "content": "hi"}], "stream": True}
WITH_USAGE = {"stream_options": {"include_usage": True}}


def config(upstream, policy: str = "", **more: str) -> str:
    top = "".join(f"{name}: {value}\n" for name, value in more.items())
    return CONFIG.format(upstream=upstream.url, options="", policy=policy) + top


def events_of(text: str) -> list:
    data = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def words_of(text: str) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for event in events_of(text)
        if event != "[DONE]"
        for choice in event.get("choices", ())
    )


def usages_of(text: str) -> list:
    """What each event says of usage; absent ones are left out."""
    return [event["usage"] for event in events_of(text) if "usage" in event]


# The beginning of a stream


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "slow down", "type": "rate_limit_error", "code": None}, 429),
        ({"message": "too long", "type": "invalid_request_error", "code": None}, 400),
        ({"message": "broken", "type": "server_error", "code": None}, 502),
        ({"message": "overloaded", "code": 503}, 503),
    ],
)
async def test_an_error_in_the_first_event_becomes_a_real_status(tmp_path, error, status):
    async def answer(_request, writer):
        event = b"data: " + json.dumps({"error": error}).encode() + b"\n\n"
        writer.write(STREAM + chunked(b": warming up\n\n") + chunked(event) + LAST_CHUNK)

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        got = await p.ask(stream=True)
        client = p.openai()
        with pytest.raises(openai.APIStatusError) as raised:
            await client.chat.completions.create(**CHAT)
        await client.close()
    assert (got.status_code, got.headers["content-type"]) == (status, "application/json")
    assert got.json()["error"]["message"] == error["message"]
    assert raised.value.status_code == status


async def test_a_silent_stream_gets_comments_once_it_has_begun(tmp_path):
    go_on = asyncio.Event()

    async def slow(_request, writer):
        writer.write(BEGIN)
        await writer.drain()
        await go_on.wait()
        writer.write(chunk({"content": "late"}) + END)

    async with (
        serving(slow) as upstream,
        running(config(upstream, keep_alive="50ms"), tmp_path) as p,
        p.http.stream("POST", f"{p.url}/v1/chat/completions", json=CHAT) as answer,
    ):
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            if text.count(": keep-alive\n\n") == 2:
                go_on.set()
    assert text.count("data: ") == 4
    assert text.endswith("data: [DONE]\n\n")
    assert words_of(text) == "late"


async def test_comments_stop_when_the_stream_speaks(tmp_path):
    """A stream whose pauses are shorter than the silence has none."""

    async def paced(_request, writer):
        writer.write(BEGIN)
        for number in range(20):
            writer.write(chunk({"content": f"{number} "}))
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(END)

    async with (
        serving(paced) as upstream,
        running(config(upstream, keep_alive="60s"), tmp_path) as p,
    ):
        answer = await p.ask(stream=True)
    assert "keep-alive" not in answer.text


async def test_an_sdk_skips_the_comments(tmp_path):
    commented = asyncio.Event()

    async def slow(_request, writer):
        writer.write(BEGIN + chunk({"content": "one"}))
        await writer.drain()
        await asyncio.sleep(0.3)  # several silences; too few would not fail the test
        commented.set()
        writer.write(chunk({"content": "two"}) + END)

    async with (
        serving(slow) as upstream,
        running(config(upstream, keep_alive="20ms"), tmp_path) as p,
    ):
        client = p.openai()
        stream = await client.chat.completions.create(**CHAT)
        words = [e.choices[0].delta.content async for e in stream if e.choices]
        await client.close()
    assert [word for word in words if word] == ["one", "two"]


# Usage


@pytest.mark.parametrize("leads_with_usage", [False, True])
@pytest.mark.parametrize("follows_with_usage", [False, True])
async def test_usage_goes_to_those_who_asked_for_it(tmp_path, leads_with_usage, follows_with_usage):
    go_on = asyncio.Event()

    async def slow(_request, writer):
        writer.write(BEGIN + chunk({"content": "An "}))
        await writer.drain()
        await go_on.wait()
        writer.write(chunk({"content": "answer."}) + END)

    def more(wanted: bool) -> dict:
        return WITH_USAGE if wanted else {}

    async with serving(slow) as upstream, running(config(upstream), tmp_path) as p:
        asking = [asyncio.create_task(p.ask(stream=True, **more(leads_with_usage)))]
        while not upstream.requests:
            await asyncio.sleep(0.01)
        asking.append(asyncio.create_task(p.ask(stream=True, **more(follows_with_usage))))
        while len(p.proxy.listeners()) < 2:
            await asyncio.sleep(0.01)
        go_on.set()
        answers = await asyncio.gather(*asking)
        answers += [await p.ask(stream=True, **more(wanted)) for wanted in (False, True)]
        whole = await p.ask()
    wanted = [leads_with_usage, follows_with_usage, False, True]
    assert [a.headers["x-cache"] for a in answers] == ["miss", "coalesced", "exact", "exact"]
    for answer, has_usage in zip(answers, wanted, strict=True):
        usages = [usage for usage in usages_of(answer.text) if usage is not None]
        assert [usage["total_tokens"] for usage in usages] == ([8] if has_usage else [])
        assert words_of(answer.text) == "An answer."
        if has_usage:
            assert events_of(answer.text)[-2]["choices"] == []
    assert whole.json()["usage"]["total_tokens"] == 8
    assert json.loads(upstream.requests[0].body)["stream_options"] == {"include_usage": True}


async def test_usage_on_a_content_chunk_is_moved_behind_it(tmp_path):
    async def odd(_request, writer):
        last = json.loads(chunk({}, finish="stop").split(b"\r\n")[1].decode()[6:])
        last["usage"] = {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5}
        event = b"data: " + json.dumps(last).encode() + b"\n\n"
        writer.write(BEGIN + chunk({"content": "x"}) + chunked(event) + DONE)

    async with serving(odd) as upstream, running(config(upstream), tmp_path) as p:
        without = await p.ask(stream=True)
        wanted = await p.ask(stream=True, **WITH_USAGE)
    assert usages_of(without.text) == []
    assert next(u for u in usages_of(wanted.text) if u)["completion_tokens"] == 0


# Broken off in the middle


@pytest.mark.parametrize("end", [DONE, LAST_CHUNK, b""])
async def test_an_error_in_mid_stream_is_passed_on_and_never_ends_cleanly(tmp_path, end):
    error = {"error": {"message": "it broke", "type": "server_error", "code": None}}
    event = chunked(b"data: " + json.dumps(error).encode() + b"\n\n")

    async def answer(_request, writer):
        writer.write(BEGIN + chunk({"content": "half"}) + event + end)
        await writer.drain()
        writer.close()

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        for _ in range(2):
            text = ""
            with contextlib.suppress(Exception):  # the abort, as this client calls it
                async with p.http.stream(
                    "POST", f"{p.url}/v1/chat/completions", json=CHAT
                ) as answered:
                    async for piece in answered.aiter_text():
                        text += piece
                    text += "CLEAN END"
            assert "it broke" in text
            assert text.count('"error"') == 1
            assert "[DONE]" not in text
            assert "CLEAN END" not in text
        client = p.openai()
        with pytest.raises(openai.APIError, match="it broke"):
            async for _event in await client.chat.completions.create(**CHAT):
                pass
        await client.close()
    assert len(upstream.requests) == 3


async def test_a_stream_that_is_cut_tells_every_listener_in_its_own_words(tmp_path):
    go_on = asyncio.Event()

    async def cut(_request, writer):
        writer.write(BEGIN + chunk({"content": "half"}) + chunked(b'data: {"choices": [{"de'))
        await writer.drain()
        await go_on.wait()
        writer.close()

    async with serving(cut) as upstream, running(config(upstream), tmp_path) as p:
        clients = [p.openai() for _ in range(2)]
        streams = [await client.chat.completions.create(**CHAT) for client in clients]
        go_on.set()
        for stream in streams:
            with pytest.raises(openai.APIError):
                async for _event in stream:
                    pass
        for client in clients:
            await client.close()
        plain_form = await p.ask("hi")
    assert len(upstream.requests) == 2
    assert plain_form.status_code == 502


# What comes in pieces


async def test_events_split_and_merged_anyhow_come_through_whole(tmp_path):
    events = [b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"test-1",'
              b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
              b'"finish_reason":null}]}']  # fmt: skip
    for word in ("Grüße ", "\U0001f600 ", "漢字"):
        body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "test-1",
                "choices": [{"index": 0, "delta": {"content": word}}]}  # fmt: skip
        events.append(b"data:" + json.dumps(body, ensure_ascii=False).encode())
    events.append(b'data: {"id":"x","model":"test-1","choices":[{"index":0,"delta":{},'
                  b'"finish_reason":"stop"}]}')  # fmt: skip
    events.append(b"data: [DONE]")
    whole = b"".join(event + b"\r\n\r\n" for event in events)

    async def answer(request, writer):
        size = int(request.header("x-piece"))
        writer.write(STREAM)
        for start in range(0, len(whole), size):
            writer.write(chunked(whole[start : start + size]))
            await writer.drain()
        writer.write(LAST_CHUNK)

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:
        answers = [
            await p.ask(stream=True, headers={"x-piece": str(size)}) for size in (1, 2, 7, 10_000)
        ]
        plain_form = await p.ask(headers={"x-piece": "1"})
    assert {words_of(a.text) for a in answers} == {"Grüße \U0001f600 漢字"}
    assert {a.text for a in answers} == {answers[0].text}
    assert "\r" not in answers[0].text
    assert plain_form.headers["x-cache"] == "exact"
    assert plain_form.json()["choices"][0]["message"]["content"] == "Grüße \U0001f600 漢字"


# Flights of the other form


@pytest.mark.parametrize("leader_streams", [False, True])
async def test_a_follower_of_the_other_form_asks_again_when_nothing_can_be_kept(
    tmp_path, leader_streams
):
    """What a filter ended is passed on and not recorded, so it has one form only."""
    go_on = asyncio.Event()

    async def filtered(request, writer):
        await go_on.wait()
        if wants_stream(request):
            writer.write(BEGIN + chunk({}, finish="content_filter") + USAGE_CHUNK + DONE)
        else:
            writer.write(plain(completion("", finish_reason="content_filter")))

    async with serving(filtered) as upstream, running(config(upstream), tmp_path) as p:
        leader = asyncio.create_task(p.ask(stream=leader_streams))
        while not upstream.requests:
            await asyncio.sleep(0.01)
        follower = asyncio.create_task(p.ask(stream=not leader_streams))
        while len(p.proxy.listeners()) < 2:
            await asyncio.sleep(0.01)
        go_on.set()
        one, other = await leader, await follower
    assert [a.headers["x-cache"] for a in (one, other)] == ["miss", "miss"]
    for answer, streamed in ((one, leader_streams), (other, not leader_streams)):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(
            "text/event-stream" if streamed else "application/json"
        )
        assert "content_filter" in answer.text
    assert len(upstream.requests) == 2


# Slow readers

BLOCK = "x" * 16_000


async def big(_request, writer, *, num_blocks: int = 50_000_000 // 16_000) -> None:
    writer.write(BEGIN)
    for _ in range(num_blocks):
        writer.write(chunk({"content": BLOCK}))
        await writer.drain()
    writer.write(END)


async def raw_stream(
    url: str, *, model: str = "test-1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Ask, and read nothing but the headers."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**16)
    body = json.dumps({**CHAT, "model": model}).encode()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b"
                 % (len(body), body))  # fmt: skip
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


@pytest.mark.parametrize(("model", "policy"), [("uncached", ""), ("test-1", ", max_entry: 1MiB")])
async def test_one_reader_that_does_not_read_holds_up_its_upstream_and_no_memory(
    tmp_path, model, policy
):
    sent = 0

    async def counted(request, writer):
        nonlocal sent
        writer.write(BEGIN)
        while sent < 50_000_000:
            writer.write(chunk({"content": BLOCK}))
            await writer.drain()
            sent += len(BLOCK)
        writer.write(END)

    async with serving(counted) as upstream, running(config(upstream, policy), tmp_path) as p:
        reader, writer = await raw_stream(p.url, model=model)
        before = -1
        while before != sent:  # until it stands still
            before = sent
            await asyncio.sleep(0.2)
        held = p.proxy.held_bytes()
        assert 0 < sent < 50_000_000
        assert held < 2 * 2**20
        # Read on, and all of it comes.
        received = b""
        while b"[DONE]" not in received[-100:]:
            piece = await reader.read(2**20)
            received = received[-100:] + piece
        writer.close()
    assert sent >= 50_000_000


async def test_a_reader_that_does_not_read_slows_nobody_and_is_let_go(tmp_path):
    go_on = asyncio.Event()
    size = peak = 0

    async def answer(request, writer):
        await go_on.wait()
        await big(request, writer)

    policy = ", max_entry: 1MiB"
    async with serving(answer) as upstream, running(config(upstream, policy), tmp_path) as p:
        opening = asyncio.create_task(raw_stream(p.url))
        while not upstream.requests:
            await asyncio.sleep(0.01)

        async def fast() -> None:
            nonlocal size, peak
            async with p.http.stream("POST", f"{p.url}/v1/chat/completions", json=CHAT) as answered:
                async for piece in answered.aiter_bytes():
                    size += len(piece)
                    peak = max(peak, p.proxy.held_bytes())

        reading = asyncio.create_task(fast())
        while len(p.proxy.listeners()) < 2:
            await asyncio.sleep(0.01)
        go_on.set()
        reader, writer = await opening
        await reading
        assert p.proxy.listeners() == ()
        rest = b""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(2**20):
                rest = (rest + piece)[-1000:]
        writer.close()
    assert len(upstream.requests) == 1
    assert size > 50_000_000
    assert peak < 20 * 2**20
    assert b"too slowly" in rest
    assert not rest.endswith(b"0\r\n\r\n")


async def test_a_reader_that_does_not_read_does_not_hold_up_the_recording(tmp_path):
    async def answer(request, writer):
        await big(request, writer, num_blocks=500)

    policy = ", max_entry: 16MiB"
    async with serving(answer) as upstream, running(config(upstream, policy), tmp_path) as p:
        _reader, writer = await raw_stream(p.url)
        while p.proxy.in_flight():
            await asyncio.sleep(0.01)
        again = await p.http.post(f"{p.url}/v1/chat/completions", json=CHAT)
        writer.close()
    assert again.headers["x-cache"] == "exact"
    assert len(again.content) > 8_000_000
    assert len(upstream.requests) == 1


async def test_a_long_stream_keeps_nothing_once_it_is_too_large_to_be_stored(tmp_path):
    peak = 0
    async with (
        serving(big) as upstream,
        running(config(upstream, ", max_entry: 1MiB"), tmp_path) as p,
    ):
        async with p.http.stream("POST", f"{p.url}/v1/chat/completions", json=CHAT) as answer:
            async for _piece in answer.aiter_bytes():
                peak = max(peak, p.proxy.held_bytes())
        again = await p.ask("hi", headers={"cache-control": "only-if-cached"})
    assert peak < 3 * 2**20
    assert again.status_code == 504
