"""Who hangs up when, and what becomes of the upstream's connection and of the answer."""

import asyncio

import pytest
from misbehaving import plain, serving
from running import BEGIN, CONFIG, END, Running, chunk, completion, running, wants_stream

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
STARTED = pytest.mark.parametrize("started", [False, True], ids=["before", "after"])


class Gated:
    """Answers in two halves; the second one waits."""

    def __init__(self, *, started: bool) -> None:
        self.go_on = asyncio.Event()
        self._started = started

    async def __call__(self, request, writer) -> None:
        if wants_stream(request):
            halves = BEGIN + chunk({"content": "An "}), chunk({"content": "answer."}) + END
        else:
            whole = plain(completion())
            halves = whole[:-20], whole[-20:]
        if self._started:
            writer.write(halves[0])
            await writer.drain()
        await self.go_on.wait()
        writer.write(halves[1] if self._started else b"".join(halves))


async def leave(p: Running, task: asyncio.Task) -> None:
    before = len(p.proxy.listeners())
    task.cancel()
    while len(p.proxy.listeners()) == before:
        await asyncio.sleep(0.005)


def config(upstream, policy: str = "") -> str:
    return CONFIG.format(upstream=upstream.url, options="", policy=policy)


@STREAM
@STARTED
@pytest.mark.parametrize("leaver", ["leader", "follower"])
@pytest.mark.parametrize("follower_streams", [False, True])
async def test_one_client_leaving_takes_nothing_from_the_other(
    tmp_path, stream, started, leaver, follower_streams
):
    gated = Gated(started=started)
    async with serving(gated) as upstream, running(config(upstream), tmp_path) as p:
        leader = asyncio.create_task(p.ask(stream=stream))
        while not upstream.requests:
            await asyncio.sleep(0.005)
        follower = asyncio.create_task(p.ask(stream=follower_streams))
        while len(p.proxy.listeners()) < 2:
            await asyncio.sleep(0.005)
        gone, other = (leader, follower) if leaver == "leader" else (follower, leader)
        await leave(p, gone)
        assert not upstream.client_left.is_set()
        gated.go_on.set()
        answer = await other
        again = await p.ask()
    assert answer.status_code == 200
    assert "An " in answer.text
    assert again.headers["x-cache"] == "exact"
    assert again.json()["choices"][0]["message"]["content"] == "An answer."
    assert len(upstream.requests) == 1


@STREAM
@STARTED
async def test_the_connection_is_closed_when_both_have_left(tmp_path, stream, started):
    gated = Gated(started=started)
    async with serving(gated) as upstream, running(config(upstream), tmp_path) as p:
        leader = asyncio.create_task(p.ask(stream=stream))
        while not upstream.requests:
            await asyncio.sleep(0.005)
        follower = asyncio.create_task(p.ask(stream=stream))
        while len(p.proxy.listeners()) < 2:
            await asyncio.sleep(0.005)
        await leave(p, leader)
        await leave(p, follower)
        await upstream.client_left.wait()
        while p.proxy.in_flight():
            await asyncio.sleep(0.005)
        gated.go_on.set()
        again = await p.ask()
    assert again.headers["x-cache"] == "miss"
    assert len(upstream.requests) == 2


@STREAM
@STARTED
async def test_who_comes_when_all_have_left_starts_anew(tmp_path, stream, started):
    """A flight that is being cancelled is not joined."""
    gated = Gated(started=started)
    async with serving(gated) as upstream, running(config(upstream), tmp_path) as p:
        first = asyncio.create_task(p.ask(stream=stream))
        while not upstream.requests:
            await asyncio.sleep(0.005)
        await leave(p, first)
        second = asyncio.create_task(p.ask(stream=stream))
        while len(upstream.requests) < 2:
            await asyncio.sleep(0.005)
        gated.go_on.set()
        answer = await second
    assert answer.headers["x-cache"] == "miss"
    assert "An " in answer.text


@STREAM
@STARTED
async def test_the_answer_is_finished_into_the_cache_where_the_policy_says_so(
    tmp_path, stream, started
):
    gated = Gated(started=started)
    policy = ", on_disconnect: finish"
    async with serving(gated) as upstream, running(config(upstream, policy), tmp_path) as p:
        first = asyncio.create_task(p.ask(stream=stream))
        while not upstream.requests:
            await asyncio.sleep(0.005)
        await leave(p, first)
        late = asyncio.create_task(p.ask(stream=not stream))
        while not p.proxy.listeners():
            await asyncio.sleep(0.005)
        assert not upstream.client_left.is_set()
        gated.go_on.set()
        joined = await late
        again = await p.ask(stream=stream)
    assert [a.headers["x-cache"] for a in (joined, again)] == ["coalesced", "exact"]
    assert len(upstream.requests) == 1


@STREAM
async def test_an_uncached_request_ends_with_its_client(tmp_path, stream):
    gated = Gated(started=False)
    async with serving(gated) as upstream, running(config(upstream), tmp_path) as p:
        first = asyncio.create_task(p.ask(stream=stream, model="uncached"))
        while not upstream.requests:
            await asyncio.sleep(0.005)
        await leave(p, first)
        await upstream.client_left.wait()
    assert len(upstream.requests) == 1


async def test_a_client_that_leaves_while_it_sends_its_body_causes_nothing(tmp_path):
    gated = Gated(started=False)
    async with serving(gated) as upstream, running(config(upstream), tmp_path) as p:
        host, port = p.url.removeprefix("http://").split(":")
        _reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        writer.write(b"content-length: 999\r\n\r\n{")
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        gated.go_on.set()
        answer = await p.ask()
    assert answer.status_code == 200
    assert len(upstream.requests) == 1
