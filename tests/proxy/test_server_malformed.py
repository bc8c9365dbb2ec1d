"""What is no HTTP, or no request to what is there: refused in OpenAI's shape, on raw sockets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from misbehaving import serving
from running import CONFIG, Running, good, running
from test_server_patience import CHAT, answer_of, connected

DEADLINE_S = 120


@contextlib.asynccontextmanager
async def proxied(folder, upstream=good) -> AsyncIterator[Running]:
    async with serving(upstream) as server:
        config = CONFIG.format(upstream=server.url, options="", policy="")
        async with running(config, folder) as p:
            yield p


@pytest.mark.parametrize(
    "lines",
    [
        b"content-length: -5\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"bad header\r\n",
    ],
)
async def test_what_is_no_http_is_refused_in_openais_shape(tmp_path, lines):
    async with proxied(tmp_path) as p, connected(p.url) as (reader, writer):
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nx-request-id: mine\r\nhost: h\r\n")
        writer.write(lines + b"\r\n")
        said = await answer_of(reader)
        assert await reader.read() == b""
    assert said.status == 400
    assert json.loads(said.body)["error"]["type"] == "invalid_request_error"
    assert said.headers[b"content-type"] == b"application/json"
    assert said.headers[b"x-request-id"] == b"mine"
    assert said.headers[b"x-cache"] == b"bypass"


async def test_what_is_no_http_at_all_is_refused_in_openais_shape(tmp_path):
    async with proxied(tmp_path) as p, connected(p.url) as (reader, writer):
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00")
        said = await answer_of(reader)
    assert said.status == 400
    assert said.headers[b"x-request-id"].startswith(b"req_")


@pytest.mark.parametrize("name", [b"Upgrade", b"upgrade", b"UPGRADE"])
async def test_an_offer_to_speak_another_protocol_is_ignored(tmp_path, name):
    """As Java's client makes it: the body follows all the same."""
    head, _, body = CHAT.partition(b"\r\n\r\n")
    offer = b"\r\nconnection: Upgrade, HTTP2-Settings\r\n" + name + b": h2c\r\nHTTP2-Settings: AAM"
    async with proxied(tmp_path) as p, connected(p.url) as (reader, writer):
        for pieces in ((head + offer + b"\r\n\r\n" + body,), (head + offer + b"\r\n\r\n", body)):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
            assert (await answer_of(reader)).status == 200


async def test_a_refusal_is_never_taken_for_the_answer_before_it(tmp_path):
    async def slow(request, writer):
        asked.set()
        await asyncio.wait_for(hung_up.wait(), DEADLINE_S)

    asked, hung_up = asyncio.Event(), asyncio.Event()
    async with proxied(tmp_path, slow) as p, connected(p.url) as (reader, writer):
        writer.write(CHAT)
        await asked.wait()
        writer.write(b"no http\r\n\r\n")
        assert await reader.read() == b""
        hung_up.set()


@pytest.mark.parametrize("surface", ["chat/completions", "completions", "embeddings", "responses"])
async def test_a_wrong_method_on_a_cached_surface_is_a_bypass(tmp_path, surface):
    async with proxied(tmp_path) as p:
        answer = await p.http.delete(f"{p.url}/v1/{surface}")
        elsewhere = await p.http.delete(f"{p.url}/v1/models")
    assert answer.status_code == elsewhere.status_code == 405
    assert answer.headers["x-cache"] == "bypass"
    assert "x-cache" not in elsewhere.headers
