"""Requests that never come to their end, on raw sockets.

Nothing is timed here: a connection that is given up tells that the time is over for others as well.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from misbehaving import plain, serving
from running import Running, completion, good, running

DEADLINE_S = 120
NEVER = "1h"

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
limits: {{head_timeout: {head}, body_timeout: {body}}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
routes:
  - {{match: {{model: "test-*"}}, to: main}}
  - {{match: {{path: "/v1/files*"}}, to: main}}
"""
BODY = b'{"model": "test-1", "messages": [{"role": "user", "content": "Hi"}]}'
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
    b"x-request-id: mine\r\ncontent-length: %d\r\n" % len(BODY)
)
CHAT = HEAD + b"\r\n" + BODY
HALF_HEAD = b"GET /v1/models HTTP/1.1\r\nhost: h"
HALF_BODY = CHAT[:-10]


@dataclass
class Said:
    status: int
    headers: dict[bytes, bytes]
    body: bytes


@contextlib.asynccontextmanager
async def patient(
    folder, *, head: str = NEVER, body: str = NEVER, upstream=good
) -> AsyncIterator[Running]:
    async with serving(upstream) as server:
        config = CONFIG.format(head=head, body=body, upstream=server.url)
        async with running(config, folder) as p:
            yield p


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def answer_of(reader: asyncio.StreamReader) -> Said:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).rstrip().split(b"\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in lines)
    body = await reader.readexactly(int(headers[b"content-length"]))
    return Said(status=int(first.split()[1]), headers=headers, body=body)


async def head_time_passes(p: Running) -> None:
    """Returns when a head that began now is given up."""
    async with connected(p.url) as (reader, writer):
        writer.write(HALF_HEAD)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("port", ["url", "admin_url"])
async def test_a_head_that_never_ends_is_answered_and_hung_up_on(tmp_path, port):
    async with (
        patient(tmp_path, head="200ms") as p,
        connected(getattr(p, port)) as (reader, writer),
    ):
        writer.write(HALF_HEAD)
        said = await answer_of(reader)
        assert await reader.read() == b""
    error = json.loads(said.body)["error"]
    assert (said.status, error["code"]) == (408, "request_timeout")
    assert "200ms" in error["message"]
    assert said.headers[b"connection"] == b"close"
    assert said.headers[b"x-request-id"].startswith(b"req_")


async def test_a_body_that_never_ends_is_answered_and_hung_up_on(tmp_path):
    async with patient(tmp_path, body="200ms") as p, connected(p.url) as (reader, writer):
        writer.write(HALF_BODY)
        said = await answer_of(reader)
        assert await reader.read() == b""
    error = json.loads(said.body)["error"]
    assert (said.status, error["code"]) == (408, "request_timeout")
    assert said.headers[b"x-request-id"] == b"mine"
    assert said.headers[b"x-cache"] == b"bypass"


async def test_an_upload_that_never_ends_is_hung_up_on(tmp_path):
    async with patient(tmp_path, body="200ms") as p, connected(p.url) as (reader, writer):
        writer.write(b"POST /v1/files HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nhalf")
        said = await answer_of(reader)
        assert await reader.read() == b""
    assert said.status == 408
    assert b"x-cache" not in said.headers


async def test_a_connection_that_says_nothing_is_closed_without_a_word(tmp_path):
    async with patient(tmp_path, head="200ms") as p, connected(p.url) as (reader, _):
        assert await reader.read() == b""


async def test_half_a_head_behind_an_answer_is_given_up_too(tmp_path):
    async with patient(tmp_path, head="200ms") as p, connected(p.url) as (reader, writer):
        writer.write(CHAT + HALF_HEAD)
        assert (await answer_of(reader)).status == 200
        assert (await answer_of(reader)).status == 408
        assert await reader.read() == b""


async def test_empty_lines_do_not_keep_a_connection(tmp_path):
    async with patient(tmp_path, head="200ms") as p, connected(p.url) as (reader, writer):
        writer.write(CHAT)
        assert (await answer_of(reader)).status == 200
        writer.write(b"\r\n")  # stops the keep-alive timer
        assert await reader.read() == b""


async def test_a_refused_request_that_is_never_finished_is_hung_up_on(tmp_path):
    async with patient(tmp_path, body="200ms") as p, connected(p.url) as (reader, writer):
        writer.write(b"GET /nowhere HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\nhalf")
        assert (await answer_of(reader)).status == 404
        assert await reader.read() == b""


async def test_a_body_has_its_own_time(tmp_path):
    async with patient(tmp_path, head="200ms") as p, connected(p.url) as (reader, writer):
        writer.write(HALF_BODY)
        await head_time_passes(p)
        writer.write(CHAT[-10:])
        assert (await answer_of(reader)).status == 200


async def test_a_client_that_waits_for_its_100_is_not_late(tmp_path):
    async def slow(request, writer):
        await asyncio.wait_for(released.wait(), DEADLINE_S)
        await good(request, writer)

    released = asyncio.Event()
    async with (
        patient(tmp_path, head="200ms", body="200ms", upstream=slow) as p,
        connected(p.url) as (reader, writer),
    ):
        writer.write(HEAD + b"expect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY)
        await head_time_passes(p)
        released.set()
        assert (await answer_of(reader)).status == 200


async def test_an_idle_connection_is_left_to_its_keep_alive(tmp_path):
    async with (
        patient(tmp_path, head="200ms", body="200ms") as p,
        connected(p.url) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(CHAT)
            assert (await answer_of(reader)).status == 200
            await head_time_passes(p)


async def test_a_slow_answer_is_waited_for_whatever_follows_its_request(tmp_path):
    async def slow(_, writer):
        await asyncio.wait_for(released.wait(), DEADLINE_S)
        writer.write(plain(completion()))

    released = asyncio.Event()
    async with (
        patient(tmp_path, head="200ms", body="200ms", upstream=slow) as p,
        connected(p.url) as (reader, writer),
    ):
        writer.write(CHAT + HALF_HEAD)
        await head_time_passes(p)
        released.set()
        assert (await answer_of(reader)).status == 200
        writer.write(b"\r\n\r\n")
        assert (await answer_of(reader)).status in (200, 408)
