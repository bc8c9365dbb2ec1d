"""What may come in, byte by byte: bodies and heads over the limits, on raw sockets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import psutil
import pytest
from misbehaving import Server, serving
from proxyprocess import serving_process
from running import Running, good, running

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
limits: {{body: 100KiB, headers: 8KiB}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
routes:
  - {{match: {{model: "test-*"}}, to: main}}
  - {{match: {{path: "/v1/files*"}}, to: main}}
"""
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"


@contextlib.asynccontextmanager
async def limited(folder) -> AsyncIterator[tuple[Running, Server]]:
    async with (
        serving(good) as upstream,
        running(CONFIG.format(upstream=upstream.url), folder) as p,
    ):
        yield p, upstream


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


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


async def test_a_body_that_is_declared_too_large_is_refused_before_it_comes(tmp_path):
    async with limited(tmp_path) as (p, upstream), connected(p.url) as (reader, writer):
        writer.write(CHAT + b"content-length: 200000\r\n\r\n")
        status, body = await answer_of(reader)
    assert (status, body["error"]["code"]) == (413, "request_too_large")
    assert not upstream.requests


async def test_a_chunked_body_is_refused_where_it_passes_the_limit(tmp_path):
    async with limited(tmp_path) as (p, upstream), connected(p.url) as (reader, writer):
        writer.write(CHAT + b"transfer-encoding: chunked\r\n\r\n")
        answering = asyncio.create_task(answer_of(reader))
        num_sent = 0
        while not answering.done() and num_sent < 100:
            writer.write(b"2000\r\n" + b" " * 0x2000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
            num_sent += 1
        status, body = await answering
    assert (status, body["error"]["code"]) == (413, "request_too_large")
    assert not upstream.requests


async def test_headers_over_the_configs_limit_are_431(tmp_path):
    async with limited(tmp_path) as (p, upstream):
        answer = await p.ask(headers={"x-long": "a" * 9000})
        assert (answer.status_code, answer.json()["error"]["type"]) == (
            431, "invalid_request_error",
        )  # fmt: skip
        assert not upstream.requests
        assert (await p.ask(headers={"x-long": "a" * 7000})).status_code == 200


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (b"GET /v1/models HTTP/1.1\r\nhost: h\r\n", b"x-one: 1\r\n" * 100),
        (b"GET /v1/models HTTP/1.1\r\nhost: h\r\nx-endless: ", b"a" * 1000),
        (b"GET /v1/models HTTP/1.1\r\nhost: h\r\n", b"a" * 1000),
        (b"GET /", b"a" * 1000),
    ],
    ids=["many headers", "one value", "one name", "target"],
)
async def test_an_endless_head_is_cut_off(tmp_path, beginning, piece):
    async with limited(tmp_path) as (p, _), connected(p.url) as (reader, writer):
        writer.write(beginning)
        num_sent = 0
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and num_sent < 100_000:
                writer.write(piece)
                await writer.drain()
                num_sent += len(piece)
                await asyncio.sleep(0)
        # What the kernel buffers on both sides is sent before the end is seen.
        assert num_sent < 10_000_000
        with contextlib.suppress(ConnectionError):
            said = await reader.read()
            assert said == b"" or said.split()[1] in (b"431", b"400")


async def test_endless_trailers_are_cut_off(tmp_path):
    async with limited(tmp_path) as (p, _), connected(p.url) as (reader, writer):
        writer.write(CHAT + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100_000):
                if reader.at_eof():
                    break
                writer.write(b"x-trailer: " + b"a" * 1000 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
            else:
                raise AssertionError("100 MB of trailers were taken")


async def test_many_endless_heads_do_not_grow_memory(tmp_path):
    async with (
        serving(good) as upstream,
        serving_process(CONFIG.format(upstream=upstream.url), tmp_path) as process,
    ):
        await process.ask()
        memory = psutil.Process(process.process.pid).memory_info
        before = memory().rss
        poured = asyncio.Semaphore(0)
        measured = asyncio.Event()

        async def pour() -> None:
            async with connected(process.url) as (reader, writer):
                writer.write(b"GET / HTTP/1.1\r\nhost: h\r\nx-endless: ")
                with contextlib.suppress(ConnectionError):
                    for _ in range(64):
                        if reader.at_eof():
                            break
                        writer.write(b"a" * 65536)
                        await writer.drain()
                poured.release()
                await measured.wait()

        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(pour())
            for _ in range(40):
                await poured.acquire()
            assert (await process.ask()).status_code == 200
            grown = memory().rss - before
            measured.set()
        assert grown < 40 * 2**20, "160 MiB were poured"


async def test_what_is_no_http_is_refused_and_the_rest_goes_on(tmp_path):
    async with limited(tmp_path) as (p, _):
        async with connected(p.url) as (reader, writer):
            writer.write(b"\x16\x03\x01 not http at all\r\n\r\n")
            assert (await reader.read()).split()[1] == b"400"
        assert (await p.ask()).status_code == 200


async def test_a_request_after_a_refused_one_on_the_same_connection_is_its_own(tmp_path):
    async with limited(tmp_path) as (p, _), connected(p.url) as (reader, writer):
        body = b'{"model": "test-1", "messages": [{"role": "user", "content": "?"}]}'
        writer.write(CHAT + b"content-length: 5\r\n\r\n{bad}")
        assert (await answer_of(reader))[0] == 400
        writer.write(CHAT + b"content-length: %d\r\n\r\n" % len(body) + body)
        status, answer = await answer_of(reader)
        assert (status, answer["object"]) == (200, "chat.completion")
