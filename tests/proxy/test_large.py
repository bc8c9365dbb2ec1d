"""Plain answers that are too large to be held, over sockets."""

import httpx
import pytest
from misbehaving import LAST_CHUNK, chunked, plain, serving
from running import CONFIG, running

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
MEBIBYTE = b" " * 2**20
CHUNK = chunked(MEBIBYTE)
NUM_CHUNKS = 80
CHAT = {"model": "test-1", "messages": [{"role": "user", "content": "hi"}]}


def config(upstream, policy: str = "") -> str:
    return CONFIG.format(upstream=upstream.url, options="", policy=policy)


async def large(_request, writer, *, num_chunks: int = NUM_CHUNKS) -> None:
    writer.write(HEAD)
    for _ in range(num_chunks):
        writer.write(CHUNK)
        await writer.drain()


async def whole(request, writer) -> None:
    await large(request, writer)
    writer.write(LAST_CHUNK)


async def endless(request, writer) -> None:
    await large(request, writer, num_chunks=10**9)


async def test_a_large_answer_is_passed_on_whole_and_not_held(tmp_path):
    num_bytes = peak = 0
    async with serving(whole) as upstream, running(config(upstream), tmp_path) as p:
        async with p.http.stream("POST", f"{p.url}/v1/chat/completions", json=CHAT) as answer:
            async for piece in answer.aiter_bytes():
                num_bytes += len(piece)
                peak = max(peak, p.proxy.held_bytes())
        again = await p.http.post(
            f"{p.url}/v1/chat/completions", json=CHAT, headers={"cache-control": "only-if-cached"}
        )
    assert answer.headers["x-cache"] == "miss"
    assert answer.headers["content-type"] == "application/json"
    assert num_bytes == NUM_CHUNKS * len(MEBIBYTE)
    assert peak < 40 * 2**20
    assert again.status_code == 504


@pytest.mark.parametrize("policy", ["", ", on_disconnect: finish"])
async def test_an_endless_answer_ends_with_its_client(tmp_path, policy):
    async with serving(endless) as upstream, running(config(upstream, policy), tmp_path) as p:
        async with p.http.stream("POST", f"{p.url}/v1/chat/completions", json=CHAT) as answer:
            async for _piece in answer.aiter_bytes():
                break
        await upstream.client_left.wait()


async def test_nobody_joins_an_answer_whose_beginning_is_gone(tmp_path):
    async def answer(request, writer):
        if len(upstream.requests) == 1:
            await endless(request, writer)
        else:
            writer.write(plain(b"{}"))

    async with (
        serving(answer) as upstream,
        running(config(upstream), tmp_path) as p,
        p.http.stream("POST", f"{p.url}/v1/chat/completions", json=CHAT) as first,
    ):
        other = await p.http.post(f"{p.url}/v1/chat/completions", json=CHAT)
    assert [a.headers["x-cache"] for a in (first, other)] == ["miss", "miss"]
    assert other.content == b"{}"


async def test_a_large_answer_that_breaks_does_not_end_cleanly(tmp_path):
    async def cut(request, writer):
        await large(request, writer, num_chunks=40)
        writer.close()

    async with serving(cut) as upstream, running(config(upstream), tmp_path) as p:
        with pytest.raises(httpx.RemoteProtocolError):
            await p.http.post(f"{p.url}/v1/chat/completions", json=CHAT)


async def test_large_embeddings_are_passed_on_as_they_come(tmp_path):
    async def answer(request, writer):
        if b'"first"' in request.body and b'"second"' not in request.body:
            item = b'{"object":"embedding","index":0,"embedding":[0.5]}'
            writer.write(plain(b'{"object":"list","model":"m","data":[%b]}' % item))
        else:
            await whole(request, writer)

    async with serving(answer) as upstream, running(config(upstream), tmp_path) as p:

        async def embed(*texts: str) -> httpx.Response:
            body = {"model": "test-1", "input": list(texts)}
            return await p.http.post(f"{p.url}/v1/embeddings", json=body)

        known = await embed("first")
        partly = await embed("first", "second")
        unknown = await embed("second", "third")
    assert known.headers["x-cache"] == "miss"
    assert len(partly.content) == len(unknown.content) == NUM_CHUNKS * len(MEBIBYTE)
    # Of the second request first the rest, then all of it.
    assert len(upstream.requests) == 4
