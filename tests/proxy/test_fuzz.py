"""Anything in, from either side: never a 500, never a hang, never half an answer kept."""

import asyncio
import itertools
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from misbehaving import Request, serving
from running import CONFIG, Running, good, running

PATHS = ("/chat/completions", "/completions", "/embeddings", "/responses")
VALID = {
    "/chat/completions": {
        "model": "test-1",
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [{"type": "file", "file": {"file_data": "x"}}]},
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "f", "arguments": '{"id": [1]}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "doc=1"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "stop": ["x"],
        "response_format": {"type": "text"},
        "cache": {"ttl": 10, "tags": ["doc:1"], "namespace": "n"},
    },
    "/completions": {"model": "test-1", "prompt": ["a", "b"], "stream": False, "max_tokens": 5},
    "/embeddings": {"model": "test-1", "input": ["a", "b"], "encoding_format": "base64"},
    "/responses": {
        "model": "test-1",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"id": 1}'},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            {"role": "user", "content": [{"type": "input_file", "file_data": "x"}]},
        ],
        "instructions": "Be short.",
        "text": {"format": {"type": "text"}},
        "tools": [{"type": "function", "name": "f"}],
    },
}
OPTIONS = ", kind: application, honour: [no-store, max-age]"
POLICY = """, stale_if_error: 1h, strip: [uuid, timestamp], never: [volatile, personal],
  normalize: [trim, line_endings, unicode, collapse_spaces, casefold, message_ids],
  tags: [{header: X-Doc-Ids}, {pattern: 'doc=(.*)', tag: 'doc:\\1'}, {documents: true},
         {tool: "*", argument: id}]"""
"""Every decision has its part in each request."""
SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
header_names = st.sampled_from(
    ["authorization", "x-cache-tags", "cache-control", "x-cache-ttl", "x-cache-namespace",
     "content-type", "x-request-id", "via", "connection", "x-forwarded-for", "accept", "api-key",
     "x-stainless-os", "surrogate-key", "expect", "te"]
)  # fmt: skip
header_values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=30).map(
    lambda text: text.replace("\x7f", "").strip()
)


@dataclass
class Live:
    """A proxy and its upstream in a loop of their own, so that hypothesis can ask in a plain
    function."""

    loop: asyncio.AbstractEventLoop
    proxy: Running
    answer: bytes = b""
    requests: list[Request] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Make each question a new one."""

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    def exchange(self, data: bytes) -> bytes:
        """Send raw bytes on a connection of their own; all that comes back."""
        return self.run(self._exchange(data))

    async def _exchange(self, data: bytes) -> bytes:
        host, port = self.proxy.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(-1), 30)
        except ConnectionError:
            return b""
        finally:
            writer.close()


def living(folder: Path, upstream_answer) -> Iterator[Live]:
    ready = threading.Event()
    held: list[Live] = []
    stop: list[asyncio.Event] = []

    async def main() -> None:
        async def answer(request, writer):
            held[0].requests.append(request)
            await upstream_answer(held[0], request, writer)

        async with serving(answer) as upstream:
            config = CONFIG.format(upstream=upstream.url, options=OPTIONS, policy=POLICY)
            async with running(config, folder) as p:
                held.append(Live(asyncio.get_running_loop(), p))
                stop.append(asyncio.Event())
                ready.set()
                await stop[0].wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield held[0]
    finally:
        held[0].loop.call_soon_threadsafe(stop[0].set)
        thread.join(60)


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    async def well(_live, request, writer):
        await good(request, writer)

    yield from living(tmp_path_factory.mktemp("fuzz"), well)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    async def as_told(live, request, writer):
        if request.header("x-well"):
            await good(request, writer)
            return
        writer.write(live.answer)
        await writer.drain()
        writer.close()

    yield from living(tmp_path_factory.mktemp("fuzz"), as_told)


def request(path: str, body: bytes, headers: list[tuple[str, str]] = ()) -> bytes:
    lines = [f"POST /v1{path} HTTP/1.1", "host: x", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers if name != "connection"]
    lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def parsed(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (r.partition(":") for r in rest)}
    if headers.get("transfer-encoding") == "chunked":
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            whole += body[: int(size, 16)]
            body = body[int(size, 16) + 2 :]
        body = whole
    return int(line.split(" ")[1]), headers, body


def check(raw: bytes) -> int:
    """An answer as it must be, whatever was asked; its status."""
    status, headers, body = parsed(raw)
    assert status != 500, body
    assert headers["x-request-id"]
    if status >= 400:
        assert headers["content-type"] == "application/json"
        error = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] is None or isinstance(error["code"], str)
    return status


@SETTINGS
@given(path=st.sampled_from(PATHS), body=st.binary(max_size=200))
def test_any_bytes_are_answered(live, path, body):
    assert check(live.exchange(request(path, body))) in (200, 400)


@SETTINGS
@given(path=st.sampled_from(PATHS), body=json_values)
def test_any_json_is_answered(live, path, body):
    check(live.exchange(request(path, json.dumps(body).encode())))


@SETTINGS
@given(data=st.data(), path=st.sampled_from(PATHS))
def test_any_change_of_a_valid_request_is_answered(live, data, path):
    body = json.loads(json.dumps(VALID[path]))
    place, name = body, None
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        name = data.draw(st.sampled_from(keys))
        inner = place[name]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[name] = data.draw(json_values)
    if isinstance(body, dict) and data.draw(st.booleans()):
        body[data.draw(st.text(max_size=8))] = data.draw(json_values)
    check(live.exchange(request(path, json.dumps(body).encode())))


@SETTINGS
@given(
    path=st.sampled_from(PATHS),
    headers=st.lists(st.tuples(header_names, header_values), max_size=6),
)
def test_any_headers_are_answered(live, path, headers):
    raw = live.exchange(request(path, json.dumps(VALID[path]).encode(), headers))
    if raw:  # the server's parser refuses some before any room of ours sees them
        status, answered, _body = parsed(raw)
        assert status != 500
        assert answered.get("x-request-id") or status in (400, 431)


@SETTINGS
@given(path=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30))
def test_any_path_is_answered(live, path):
    raw = live.exchange(f"GET /v1/{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    status, _headers, _body = parsed(raw)
    assert status != 500


# The other side

status_lines = st.sampled_from([
    *[b"200 OK"] * 12, b"201 Created", b"204 No Content", b"302 Found", b"304 No", b"400 X",
    b"418 Tea", b"429 Slow", b"500 X", b"503 X", b"599 X", b"199 X", b"", b"abc", b"2\xff0 X",
    b"1000 X", b"200",
])  # fmt: skip
kinds = st.sampled_from(
    [b"application/json", b"text/event-stream", b"text/html", b"", b"\xff", b"text/event-stream;x"]
)
pieces = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([
        b'{"id":"1","choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}',
        b'{"choices":[]}', b"null", b"[]", b'{"error":{"message":"m"}}', b'{"error":"text"}',
        b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"content":"half"}}]}\n\n', b"data: [DONE]\n\n",
        b"data: [DONE]", b": comment\n\n", b"id: 1\nretry: 2\n\n", b"data: {broken\n\n",
        b'data: {"error":{"message":"m"}}\n\n', b"event: error\ndata: x\n\n", b"\r\n", b"data:\n\n",
        b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
        b'{"data":[{"index":0,"embedding":[0.5]}],"model":"m"}', b'{"status":"completed"}',
    ]),
)  # fmt: skip


@settings(parent=SETTINGS, max_examples=150)
@given(
    path=st.sampled_from(PATHS),
    line=status_lines,
    kind=kinds,
    header=st.tuples(header_names, st.binary(max_size=20)),
    body=st.lists(pieces, max_size=5).map(b"".join),
    framing=st.sampled_from(["length", "long", "short", "chunked", "none"]),
    stream=st.booleans(),
)
def test_whatever_an_upstream_says_is_never_a_fault_of_ours_nor_half_an_answer_kept(
    scripted, caplog, path, line, kind, header, body, framing, stream
):
    number = next(scripted.numbers)
    head = b"HTTP/1.1 " + line + b"\r\ncontent-type: " + kind
    head += b"\r\n" + header[0].encode() + b": " + header[1].replace(b"\r", b"").replace(b"\n", b"")
    lengths = {"length": len(body), "long": len(body) + 9, "short": max(len(body) - 3, 0)}
    if framing in lengths:
        head += b"\r\ncontent-length: %d" % lengths[framing]
    elif framing == "chunked":
        head += b"\r\ntransfer-encoding: chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    scripted.answer = head + b"\r\n\r\n" + body
    asked = {**VALID[path], "number": number}
    if path != "/embeddings":
        asked["stream"] = stream
    for turn in range(3):  # most requests do well, so that no breaker keeps the others away
        well = json.dumps({**VALID["/chat/completions"], "turn": turn, "number": number}).encode()
        scripted.exchange(request("/chat/completions", well, [("x-well", "yes")]))
    with caplog.at_level(logging.ERROR, logger="rejoinder"):
        raws = [scripted.exchange(request(path, json.dumps(asked).encode())) for _ in range(2)]
    assert [r.message for r in caplog.records if r.name.startswith("rejoinder")] == []
    caplog.clear()
    for raw in raws:
        status, headers, _body = parsed(raw) if b"\r\n\r\n" in raw else (0, {}, b"")
        assert status
        assert headers["x-request-id"]
        if headers["x-cache"] in ("exact", "stale", "semantic"):
            # Only what has an end of its own is ever kept.
            assert status == 200
            assert framing not in ("long", "short")
            assert b'"finish_reason":"stop"' in scripted.answer or path == "/embeddings"
