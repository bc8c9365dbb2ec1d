import asyncio
import contextlib
import gzip
import json
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest
from misbehaving import (
    LAST_CHUNK,
    STREAM,
    Answer,
    Request,
    Server,
    answering,
    chunked,
    plain,
    serving,
)

from proxy.errors import (
    UpstreamBroken,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.settings.units import Duration, Secret
from proxy.settings.upstreams import Timeout, Upstream
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse
from proxy.upstreams.remote import RemoteServer
from proxy.upstreams.transport import Transport, tls_context

DEADLINE_S = 20


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def request(**changes: Any) -> UpstreamRequest:
    fields: dict[str, Any] = {
        "request_id": "r", "method": "POST", "path": "/chat/completions", "query": b"",
        "headers": ((b"content-type", b"application/json"),), "credential": b"Bearer sk-client",
        "body": b'{"model":"m"}', "stream": False,
    }  # fmt: skip
    return UpstreamRequest(**(fields | changes))


@contextlib.asynccontextmanager
async def remote(base_url: str, **config: Any) -> AsyncIterator[RemoteServer]:
    written = Upstream(base_url=base_url, **config)
    upstream = RemoteServer(
        base_url, upstream="up", config=written,
        transport=Transport(
            base_url, context=tls_context(written), connect_s=written.timeout.connect
        ),
    )  # fmt: skip
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield upstream
    finally:
        await upstream.close()


@contextlib.asynccontextmanager
async def talking(answer: Answer, **config: Any) -> AsyncIterator[tuple[Server, RemoteServer]]:
    async with serving(answer) as server, remote(f"{server.url}/v1", **config) as upstream:
        yield server, upstream


async def whole(response: UpstreamResponse) -> bytes:
    return b"".join([piece async for piece in response.body])


def names(response: UpstreamResponse) -> list[bytes]:
    return [name for name, _ in response.headers]


async def test_a_plain_answer_comes_back_with_its_status_headers_and_bytes() -> None:
    answer = plain(b'{"a":1}', status="418 Teapot", headers=("X-Request-Id: 7",))
    async with talking(answering(answer)) as (server, upstream):
        response = await upstream.send(request())

        assert (response.status, response.upstream) == (418, "up")
        assert (b"x-request-id", b"7") in response.headers
        assert response.content_type == b"application/json"
        assert await whole(response) == b'{"a":1}'
        (got,) = server.requests
        assert got.line == "POST /v1/chat/completions HTTP/1.1"
        assert got.body == b'{"model":"m"}'
        assert upstream.state == "ready"


async def test_headers_are_sent_as_given_with_nothing_added_but_what_http_needs() -> None:
    headers = ((b"x-a", b"1"), (b"user-agent", b"me"), (b"x-a", b"2"))
    async with talking(answering(plain(b"{}"))) as (server, upstream):
        await whole(await upstream.send(request(headers=headers, credential=None)))
        sent = sorted((name.lower(), value) for name, value in server.requests[0].headers)
        host = server.url.removeprefix("http://")
        assert sent == [
            ("accept-encoding", "identity"), ("content-length", "13"), ("host", host),
            ("user-agent", "me"), ("x-a", "1"), ("x-a", "2"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "credential", "sent"),
    [
        ({}, b"Bearer sk-client", {"authorization": "Bearer sk-client"}),
        ({}, None, {}),
        ({"auth": "api-key"}, b"Bearer sk-client", {"api-key": "sk-client"}),
        ({"credential": "own", "api_key": Secret("sk-own")}, b"Bearer sk-client",
         {"authorization": "Bearer sk-own"}),
        ({"credential": "own", "api_key": Secret("sk-own"), "auth": "api-key"}, None,
         {"api-key": "sk-own"}),
    ],
)  # fmt: skip
async def test_the_credential_that_the_config_says_is_sent(
    config: dict[str, Any], credential: bytes | None, sent: dict[str, str]
) -> None:
    async with talking(answering(plain(b"{}")), **config) as (server, upstream):
        await whole(await upstream.send(request(credential=credential)))
        got = {name: server.requests[0].header(name) for name in ("authorization", "api-key")}
        assert {name: value for name, value in got.items() if value} == sent


async def test_query_and_headers_of_the_config_go_with_every_request() -> None:
    config = {"query": {"api-version": "2025 06"}, "headers": {"X-Team": "ours"}}
    async with talking(answering(plain(b"{}")), **config) as (server, upstream):
        asked = request(query=b"a=1&api-version=mine&b", headers=((b"x-team", b"theirs"),))
        await whole(await upstream.send(asked))
        await whole(await upstream.send(request()))

        first, second = server.requests
        assert first.line.split()[1] == "/v1/chat/completions?a=1&b&api-version=2025+06"
        assert second.line.split()[1] == "/v1/chat/completions?api-version=2025+06"
        assert [v for k, v in first.headers if k.lower() == "x-team"] == ["ours"]


@pytest.mark.parametrize("path", ["/models/a%2Fb%20c", "/x;y=1/~z", "/models/a/b:c"])
async def test_the_path_goes_out_as_the_client_wrote_it(path: str) -> None:
    async with talking(answering(plain(b"{}"))) as (server, upstream):
        await whole(await upstream.send(request(method="GET", path=path, body=b"")))
        assert server.requests[0].line == f"GET /v1{path} HTTP/1.1"


async def test_a_path_that_is_no_path_is_the_clients_mistake() -> None:
    async with talking(answering(plain(b"{}"))) as (_, upstream):
        response = await upstream.send(request(path="/x\x00"))
        assert response.status == 400
        assert b"invalid_request_error" in await whole(response)


async def test_a_body_that_is_streamed_in_is_streamed_out() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async with talking(answering(plain(b"{}"))) as (server, upstream):
        await whole(await upstream.send(request(path="/files", body=pieces())))
        assert server.requests[0].body == b"onetwo"


async def test_headers_of_the_hop_do_not_pass_and_the_length_of_a_plain_body_does() -> None:
    headers = ("Keep-Alive: timeout=5", "Connection: X-Hop", "X-Hop: 1", "X-End: 2")
    async with talking(answering(plain(b"{}", headers=headers))) as (_, upstream):
        response = await upstream.send(request())
        assert names(response) == [b"content-type", b"x-end", b"content-length"]
        await whole(response)


async def test_an_answer_that_is_compressed_all_the_same_is_unpacked() -> None:
    packed = gzip.compress(b'{"a":1}')
    answer = plain(packed, headers=("Content-Encoding: gzip",))
    async with talking(answering(answer)) as (_, upstream):
        response = await upstream.send(request())
        assert b"content-encoding" not in names(response)
        assert b"content-length" not in names(response)
        assert await whole(response) == b'{"a":1}'


@pytest.mark.parametrize(
    ("head", "body", "is_delimited"),
    [
        (b"content-length: 2\r\n", b"{}", True),
        (b"transfer-encoding: chunked\r\n", chunked(b"{}") + LAST_CHUNK, True),
        (b"connection: close\r\n", b"{}", False),
        (b"transfer-encoding: chunked\r\ncontent-encoding: gzip\r\n",
         chunked(gzip.compress(b"{}", mtime=0)) + LAST_CHUNK, False),
    ],
    # Names of their own: gzip's bytes vary between builds of zlib, a test's name must not.
    ids=["length", "chunked", "closing", "packed"],
)  # fmt: skip
async def test_it_is_told_where_a_cut_would_not_be_noticed(
    head: bytes, body: bytes, is_delimited: bool
) -> None:
    async def closing(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)
        writer.close()

    async with talking(closing) as (_, upstream):
        response = await upstream.send(request())
        assert await whole(response) == b"{}"
    assert response.delimited is is_delimited


async def test_an_encoding_that_nobody_can_read_is_a_broken_answer() -> None:
    answer = plain(b"xxxx", headers=("Content-Encoding: br",))
    async with talking(answering(answer)) as (_, upstream):
        with pytest.raises(UpstreamBroken):
            await upstream.send(request())


async def test_compressed_bytes_that_are_damaged_are_a_broken_answer() -> None:
    answer = plain(b"not gzip", headers=("Content-Encoding: gzip",))
    async with talking(answering(answer)) as (_, upstream):
        response = await upstream.send(request())
        with pytest.raises(UpstreamBroken):
            await whole(response)


async def test_redirects_are_not_followed_and_cookies_not_kept() -> None:
    headers = ("Location: http://127.0.0.1:1/", "Set-Cookie: tenant=a")
    answer = plain(b"", status="302 Found", headers=headers)
    async with serving(answering(answer)) as server:
        by_name = server.url.replace("127.0.0.1", "localhost")  # jars ignore bare addresses
        async with remote(by_name) as upstream:
            for _ in range(2):
                response = await upstream.send(request())
                assert response.status == 302
                await whole(response)
            assert server.requests[1].header("cookie") is None


async def test_a_header_of_many_kilobytes_is_no_reason_to_fail() -> None:
    answer = plain(b"{}", headers=("Content-Security-Policy: " + "x" * 40_000,))
    async with talking(answering(answer)) as (_, upstream):
        assert await whole(await upstream.send(request())) == b"{}"


async def test_pieces_of_a_stream_come_as_they_are_sent() -> None:
    go_on = asyncio.Event()

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(chunked(b"data: 2\n\n") + LAST_CHUNK)

    async with talking(answer) as (_, upstream):
        response = await upstream.send(request(stream=True))
        assert await anext(response.body) == b"data: 1\n\n"
        go_on.set()
        assert await anext(response.body) == b"data: 2\n\n"
        with pytest.raises(StopAsyncIteration):
            await anext(response.body)
        await response.body.aclose()


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        STREAM + chunked(b"data: 1\n\n"),
        STREAM + chunked(b"data: 1\n\n") + b"20\r\nda",
        STREAM + chunked(b"data: 1\n\n") + b"zz\r\n",
    ],
)
async def test_an_answer_that_is_cut_off_is_broken_and_never_ends_as_if_whole(cut: bytes) -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(cut)
        await writer.drain()
        writer.close()

    async with talking(answer) as (_, upstream):
        with pytest.raises(UpstreamBroken):
            await whole(await upstream.send(request()))


@pytest.mark.parametrize("junk", [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n"])
async def test_a_server_that_closes_without_an_answer_is_broken_before_the_first_byte(
    junk: bytes,
) -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(junk)
        await writer.drain()
        writer.close()

    async with talking(answer) as (server, upstream):
        with pytest.raises(UpstreamBroken) as caught:
            await upstream.send(request())
        assert caught.value.before_first_byte
        assert len(server.requests) == 1


async def test_an_idle_connection_that_the_server_closed_costs_one_silent_retry() -> None:
    async def answer(got: Request, writer: asyncio.StreamWriter) -> None:
        if got.connection == 0 and len(server.requests) == 2:
            writer.close()  # it took the request, and closes as an idle server would have
        else:
            writer.write(plain(b"{}"))

    async with talking(answer) as (server, upstream):
        for _ in range(2):
            response = await upstream.send(request())
            assert await whole(response) == b"{}"
        assert [got.connection for got in server.requests] == [0, 0, 1]


async def test_a_request_on_which_the_server_hangs_up_is_sent_once_more_and_no_oftener() -> None:
    async def answer(got: Request, writer: asyncio.StreamWriter) -> None:
        if got.body == b"die":
            writer.close()
            return
        while len(server.requests) < 4:  # connections that are open at the same time
            await asyncio.sleep(0.01)
        writer.write(plain(b"{}"))

    async with talking(answer) as (server, upstream):
        warm = await asyncio.gather(*(upstream.send(request()) for _ in range(4)))
        await asyncio.gather(*map(whole, warm))
        for _ in range(2):
            with pytest.raises(UpstreamBroken):
                await upstream.send(request(body=b"die"))
        assert [got.body for got in server.requests[4:]] == [b"die"] * 3
        await whole(await upstream.send(request()))
        await whole(await upstream.send(request()))
        assert server.requests[-1].connection < server.requests[-2].connection, "used ones again"


UNASKED = plain(b'"of another tenant"')


@pytest.mark.parametrize(
    "first", [plain(b"{}"), b"HTTP/1.1 204 No Content\r\n\r\n"], ids=["a body", "no body"]
)
@pytest.mark.parametrize(
    "surplus",
    [UNASKED, UNASKED[:-5], UNASKED[:9], b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"],
    ids=["an answer", "most of an answer", "half a head", "an interim answer", "a line"],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["in one packet", "later"])
async def test_what_nobody_asked_for_is_no_answer_to_the_next_request(
    first: bytes, surplus: bytes, *, at_once: bool
) -> None:
    async def answer(got: Request, writer: asyncio.StreamWriter) -> None:
        if len(server.requests) > 1:
            writer.write(plain(b'"mine"'))
            return
        writer.write(first + surplus if at_once else first)
        if not at_once:
            asyncio.get_running_loop().call_later(0.02, writer.write, surplus)

    async with talking(answer) as (server, upstream):
        await whole(await upstream.send(request()))
        await asyncio.sleep(0.1)
        for _ in range(2):
            assert await whole(await upstream.send(request())) == b'"mine"'


async def test_nobody_listening_is_unreachable() -> None:
    async with serving(answering(b"")) as server:
        url = server.url
    async with remote(url) as upstream:
        with pytest.raises(UpstreamUnreachable) as caught:
            await upstream.send(request())
        assert caught.value.upstream == "up"
        assert "cannot connect" in upstream.state


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    async with remote("http://nowhere.invalid/v1") as upstream:
        with pytest.raises(UpstreamUnreachable):
            await upstream.send(request())


def timeouts(**seconds: float) -> dict[str, Timeout]:
    return {"timeout": Timeout(**{name: Duration(value) for name, value in seconds.items()})}


async def silent(_request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(DEADLINE_S)


async def test_a_server_that_never_finishes_tls_is_a_timeout_of_the_connection() -> None:
    async with (
        serving(answering(b"")) as server,
        remote(server.url.replace("http:", "https:"), **timeouts(connect=0.2)) as upstream,
    ):
        with pytest.raises(UpstreamTimeout) as caught:
            await upstream.send(request())
        assert caught.value.phase == "connect"


async def test_no_answer_in_time_is_a_timeout_of_the_first_byte() -> None:
    async with talking(silent, **timeouts(first_byte=0.1)) as (server, upstream):
        with pytest.raises(UpstreamTimeout) as caught:
            await upstream.send(request())
        assert caught.value.phase == "first_byte"
        await server.client_left.wait()


async def test_headers_without_a_body_are_still_waiting_for_the_first_byte() -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await asyncio.sleep(DEADLINE_S)

    limits = timeouts(first_byte=0.3, idle=0.01)
    async with talking(answer, **limits) as (server, upstream):
        response = await upstream.send(request(stream=True))
        with pytest.raises(UpstreamTimeout) as caught:
            await anext(response.body)
        assert caught.value.phase == "first_byte"
        await server.client_left.wait()


async def test_silence_in_the_middle_is_a_timeout_of_the_idle_phase() -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await asyncio.sleep(DEADLINE_S)

    async with talking(answer, **timeouts(idle=0.1)) as (server, upstream):
        response = await upstream.send(request(stream=True))
        assert await anext(response.body) == b"data: 1\n\n"
        with pytest.raises(UpstreamTimeout) as caught:
            await anext(response.body)
        assert caught.value.phase == "idle"
        await server.client_left.wait()


async def test_an_endless_answer_is_ended_by_the_total_timeout() -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while not writer.is_closing():
            writer.write(chunked(b": x\n\n"))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with talking(answer, **timeouts(total=0.3)) as (_, upstream):
        response = await upstream.send(request(stream=True))
        with pytest.raises(UpstreamTimeout) as caught:
            await whole(response)
        assert caught.value.phase == "total"


async def test_a_slow_reader_is_not_taken_for_a_silent_server() -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await writer.drain()
        writer.write(chunked(b"data: 2\n\n") + LAST_CHUNK)

    async with talking(answer, **timeouts(idle=0.2)) as (_, upstream):
        response = await upstream.send(request(stream=True))
        await anext(response.body)
        await asyncio.sleep(0.5)
        await whole(response)


async def test_cancelling_before_the_answer_closes_the_connection() -> None:
    async with talking(silent) as (server, upstream):
        task = asyncio.create_task(upstream.send(request()))
        while not server.requests:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_left.wait()


async def test_cancelling_a_read_closes_the_connection_and_is_not_a_timeout() -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await asyncio.sleep(DEADLINE_S)

    async with talking(answer) as (server, upstream):
        response = await upstream.send(request(stream=True))
        await anext(response.body)
        task = asyncio.ensure_future(anext(response.body))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_left.wait()


@pytest.mark.parametrize("read_first", [True, False])
async def test_closing_a_body_early_closes_the_connection(read_first: bool) -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: 1\n\n"))
        await asyncio.sleep(DEADLINE_S)

    async with talking(answer) as (server, upstream):
        response = await upstream.send(request(stream=True))
        if read_first:
            await anext(response.body)
        await response.body.aclose()
        await response.body.aclose()
        await server.client_left.wait()
        with pytest.raises(StopAsyncIteration):
            await anext(response.body)


async def test_a_body_closed_at_its_terminal_event_keeps_the_connection() -> None:
    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunked(b"data: [DONE]\n\n"))
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(LAST_CHUNK)

    async with talking(answer) as (server, upstream):
        for _ in range(3):
            response = await upstream.send(request(stream=True))
            assert await anext(response.body) == b"data: [DONE]\n\n"
            await response.body.aclose()
        assert server.num_connections == 1


async def test_connections_are_used_again() -> None:
    async with talking(answering(plain(b"{}"))) as (server, upstream):
        for _ in range(5):
            await whole(await upstream.send(request()))
        assert server.num_connections == 1


REFUSAL = plain(b'{"error":{"message":"Unknown field: stream_options"}}', status="400 Bad Request")


async def test_usage_is_asked_of_streams_only() -> None:
    async with talking(answering(plain(b"{}"))) as (server, upstream):
        await whole(await upstream.send(request(stream=True)))
        await whole(await upstream.send(request(stream=False)))
        await whole(await upstream.send(request(stream=True, path="/responses")))
        asked, plain_, responses = (got.body for got in server.requests)
        assert json.loads(asked) == {"model": "m", "stream_options": {"include_usage": True}}
        assert plain_ == responses == b'{"model":"m"}'


async def test_a_server_that_refuses_to_be_asked_for_usage_is_asked_once() -> None:
    answers = answering(REFUSAL, plain(b"{}"))
    async with talking(answers) as (server, upstream):
        for _ in range(2):
            response = await upstream.send(request(stream=True))
            assert response.status == 200
            await whole(response)
        assert [b"stream_options" in got.body for got in server.requests] == [True, False, False]


async def test_another_refusal_is_passed_on_as_it_is() -> None:
    refusal = plain(b'{"error":{"message":"no"}}', status="400 Bad Request")
    async with talking(answering(refusal)) as (server, upstream):
        response = await upstream.send(request(stream=True))
        assert response.status == 400
        assert await whole(response) == b'{"error":{"message":"no"}}'
        assert len(server.requests) == 1


async def test_a_server_known_not_to_count_is_never_asked() -> None:
    body = b'{"model":"m","stream_options":{"include_usage":true,"x":1}}'
    async with talking(answering(plain(b"{}")), stream_usage=False) as (server, upstream):
        await whole(await upstream.send(request(stream=True)))
        await whole(await upstream.send(request(stream=True, body=body)))
        first, second = (got.body for got in server.requests)
        assert first == b'{"model":"m"}'
        assert json.loads(second) == {"model": "m", "stream_options": {"x": 1}}


async def test_a_proxy_of_the_environment_is_used_but_not_for_excluded_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(answering(plain(b"{}"))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with remote("http://upstream.invalid/v1") as upstream:
            await whole(await upstream.send(request()))
        assert proxy.requests[0].line == (
            "POST http://upstream.invalid/v1/chat/completions HTTP/1.1"
        )
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with talking(answering(plain(b"{}"))) as (server, direct):
            await whole(await direct.send(request()))
            assert len(server.requests) == 1
        assert len(proxy.requests) == 1


async def test_secrets_are_in_no_text_of_an_error() -> None:
    secrets = {"credential": "own", "api_key": Secret("sk-own"), "query": {"key": "sk-query"}}

    async def hang_up(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def cut(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx")
        writer.close()

    texts: list[str] = []
    for answer in (hang_up, cut, silent):
        limits = timeouts(first_byte=0.1)
        async with talking(answer, **secrets, **limits) as (_, upstream):
            try:
                await whole(await upstream.send(request()))
            except UpstreamError as error:
                texts += [repr(error), *traceback.format_exception(error)]
    async with remote("http://127.0.0.1:1/v1", **secrets) as upstream:
        try:
            await upstream.send(request())
        except UpstreamError as error:
            texts += [repr(error), *traceback.format_exception(error)]
    assert len(texts) > 8
    assert not [text for text in texts if "sk-own" in text or "sk-query" in text]
