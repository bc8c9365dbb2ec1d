"""What is not cached goes through untouched, both ways, while it comes. Over sockets."""

import asyncio
import contextlib

import httpx
import openai
import pytest
from misbehaving import LAST_CHUNK, chunked, plain, serving
from running import running

DEADLINE_S = 60

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/api/v1"}}
routes:
  - {{match: {{path: "/v1/files*"}}, to: main}}
  - {{match: {{path: "/v1/audio/*"}}, to: main}}
"""
MEGABYTE = b"\x00\xff" * 2**19


@contextlib.asynccontextmanager
async def raw_upstream(handle):
    """A server that gets the head and then the bare connection."""
    tasks: set[asyncio.Task] = set()

    async def one(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        try:
            await handle(head, reader, writer)
        finally:
            writer.close()

    def accept(reader, writer):
        task = asyncio.create_task(one(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_upload_arrives_while_it_is_being_sent(tmp_path):
    arrived = asyncio.Event()
    size = 0

    async def handle(head, reader, writer):
        nonlocal size
        assert head.startswith(b"POST /api/v1/files HTTP/1.1\r\n")
        while size < 20 * len(MEGABYTE):
            line = await reader.readline()
            piece = await reader.readexactly(int(line, 16))
            await reader.readexactly(2)
            size += len(piece)
            arrived.set()
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(plain(b'{"id": "file-1"}', status="201 Created"))
        await writer.drain()

    async def upload():
        yield MEGABYTE
        await arrived.wait()  # what was sent so far is there before the rest is sent
        for _ in range(19):
            yield MEGABYTE

    async with raw_upstream(handle) as url, running(CONFIG.format(upstream=url), tmp_path) as p:
        answer = await p.http.post(f"{p.url}/v1/files", content=upload())
    assert (answer.status_code, answer.json()) == (201, {"id": "file-1"})
    assert size == 20 * len(MEGABYTE)


async def test_a_download_is_passed_on_while_it_comes(tmp_path):
    go_on = asyncio.Event()

    async def handle(head, reader, writer):
        length = f"content-length: {2 * len(MEGABYTE)}\r\n".encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\n" + length + b"\r\n")
        writer.write(MEGABYTE)
        await writer.drain()
        await go_on.wait()
        writer.write(MEGABYTE)
        await writer.drain()

    async with (
        raw_upstream(handle) as url,
        running(CONFIG.format(upstream=url), tmp_path) as p,
        p.http.stream("GET", f"{p.url}/v1/files/f1/content") as answer,
    ):
        body = b""
        async for piece in answer.aiter_raw():
            body += piece
            if len(body) == len(MEGABYTE):
                go_on.set()
    assert body == 2 * MEGABYTE
    assert answer.headers["content-length"] == str(len(body))
    assert answer.headers["content-type"] == "audio/mpeg"
    assert "x-cache" not in answer.headers


async def test_method_path_query_status_and_headers_are_kept(tmp_path):
    async def answer(request, writer) -> None:
        writer.write(
            plain(
                b"",
                status="409 Conflict",
                headers=(
                    "x-odd: yes",
                    "set-cookie: a=b",
                    "x-request-id: theirs",
                    "connection: x-odd2",
                    "x-odd2: hop",
                ),
            )
        )

    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url), tmp_path) as p,
    ):
        answer = await p.http.delete(
            f"{p.url}/v1/files/a%2Fb%41?purpose=x%20y+z%2Fz&limit=%32",
            headers={"authorization": "Bearer sk-1", "x-mine": "1", "cookie": "c=d"},
        )
    request = upstream.requests[0]
    assert request.line == "DELETE /api/v1/files/a%2Fb%41?purpose=x%20y+z%2Fz&limit=%32 HTTP/1.1"
    assert request.header("authorization") == "Bearer sk-1"
    assert request.header("x-mine") == "1"
    assert request.header("cookie") is None
    assert request.header("content-length") in (None, "0")
    assert answer.status_code == 409
    assert answer.headers["x-odd"] == "yes"
    assert answer.headers["x-upstream-request-id"] == "theirs"
    assert answer.headers["x-request-id"] != "theirs"
    assert not {"set-cookie", "x-odd2"} & set(answer.headers)


async def test_a_redirect_is_the_client_s_to_follow(tmp_path):
    async def elsewhere(_request, writer):
        writer.write(plain(b"", status="302 Found", headers=("location: https://blob.example/1",)))

    async with (
        serving(elsewhere) as upstream,
        running(CONFIG.format(upstream=upstream.url), tmp_path) as p,
    ):
        answer = await p.http.get(f"{p.url}/v1/files/file-1/content")
    assert (answer.status_code, answer.headers["location"]) == (302, "https://blob.example/1")
    assert len(upstream.requests) == 1


async def test_a_status_that_http_does_not_know_is_a_502(tmp_path):
    async def odd(_request, writer):
        writer.write(plain(b"", status="999 Odd"))

    async with (
        serving(odd) as upstream,
        running(CONFIG.format(upstream=upstream.url), tmp_path) as p,
    ):
        answer = await p.http.get(f"{p.url}/v1/files/file-1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_broken")


async def test_a_file_comes_through_from_openais_client(tmp_path):
    async def answer(request, writer) -> None:
        writer.write(
            plain(
                b'{"id": "file-1", "object": "file", "bytes": 5, "created_at": 1, '
                b'"filename": "a.txt", "purpose": "batch", "status": "processed"}'
            )
        )

    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url), tmp_path) as p,
        p.openai() as client,
    ):
        file = await client.files.create(file=("a.txt", b"\r\nhi\x00"), purpose="batch")
        with pytest.raises(openai.NotFoundError):
            await client.images.generate(prompt="not routed")
    assert file.id == "file-1"
    request = upstream.requests[0]
    assert request.header("content-type").startswith("multipart/form-data; boundary=")
    assert b'name="purpose"\r\n\r\nbatch\r\n' in request.body
    assert b"\r\n\r\n\r\nhi\x00\r\n" in request.body
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    "when", ["before the answer", "in the middle of it", "while it uploads", "after the upload"]
)
async def test_a_client_that_hangs_up_closes_the_upstreams_connection(tmp_path, when):
    began = asyncio.Event()
    closed = asyncio.Event()

    async def handle(head, reader, writer):
        if when == "in the middle of it":
            writer.write(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(b"half")
            )
            await writer.drain()
        if when == "after the upload":
            await reader.readuntil(b"0\r\n\r\n")
        began.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        closed.set()

    async def upload():
        yield b"half"
        if when == "while it uploads":
            await asyncio.Event().wait()

    async def ask(http: httpx.AsyncClient) -> None:
        if "upload" in when:
            await http.post(f"{p.url}/v1/files", content=upload())
        else:
            await http.get(f"{p.url}/v1/files/f1/content")

    async with raw_upstream(handle) as url, running(CONFIG.format(upstream=url), tmp_path) as p:
        async with httpx.AsyncClient(timeout=60) as http:
            asking = asyncio.create_task(ask(http))
            await began.wait()
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
        async with asyncio.timeout(DEADLINE_S):  # long before the proxy gives up by itself
            await closed.wait()


async def test_an_upstream_that_dies_in_the_middle_is_no_clean_end(tmp_path):
    async def handle(head, reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(b"half"))
        await writer.drain()
        writer.transport.abort()

    async with raw_upstream(handle) as url, running(CONFIG.format(upstream=url), tmp_path) as p:
        with pytest.raises(httpx.RemoteProtocolError):
            await p.http.get(f"{p.url}/v1/files/f1/content")


async def test_no_compression_is_asked_of_the_upstream(tmp_path):
    async def handle(head, reader, writer):
        assert b"accept-encoding: identity" in head.lower()
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(chunked(b"plain") + LAST_CHUNK)
        await writer.drain()

    async with raw_upstream(handle) as url, running(CONFIG.format(upstream=url), tmp_path) as p:
        answer = await p.http.get(
            f"{p.url}/v1/files/f1/content", headers={"accept-encoding": "gzip"}
        )
    assert answer.content == b"plain"


async def metrics(p) -> str:
    return (await p.http.get(f"{p.admin_url}/metrics")).text


@pytest.mark.parametrize("how", ["close", "abort", "write_eof"])
async def test_uploads_that_break_off_are_not_held_against_the_upstream(tmp_path, how):
    async def answer(request, writer) -> None:
        writer.write(plain(b"{}"))

    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: p\r\ncontent-type: a/b\r\ncontent-length: 900000\r\n\r\n"
    )
    async with (
        serving(answer) as upstream,
        running(CONFIG.format(upstream=upstream.url), tmp_path) as p,
    ):
        address = httpx.URL(p.url)
        writers = []
        for _ in range(25):
            _, writer = await asyncio.open_connection(address.host, address.port)
            writers.append(writer)
            writer.write(head + bytes(100_000))
            await writer.drain()
            await asyncio.sleep(0.01)
            getattr(writer.transport, how)()
        while 'result="cancelled",upstream="main"} 25.0' not in await metrics(p):
            await asyncio.sleep(0.02)
        answered = await p.http.get(f"{p.url}/v1/files")
        for writer in writers:
            writer.close()
    assert answered.status_code == 200
