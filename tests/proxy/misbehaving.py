"""A small HTTP server that answers with whatever bytes a test tells it to, on a real socket."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Request:
    line: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    """Number of the connection that it came on, from 0."""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass
class Server:
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    num_connections: int = 0
    client_left: asyncio.Event = field(default_factory=asyncio.Event)
    """A client closed its connection, before or after its answer."""


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]
"""Writes the answer. The connection stays open afterwards, unless it closes the writer."""


@contextlib.asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, server.num_connections = server.num_connections, server.num_connections + 1
        writers.add(writer)
        try:
            while not writer.is_closing():
                request = await _read(reader, number)
                server.requests.append(request)
                watch = asyncio.create_task(_watch(reader, server))
                try:
                    await answer(request, writer)
                    if not writer.is_closing():
                        await writer.drain()
                finally:
                    watch.cancel()
                    await asyncio.wait({watch})
        except (asyncio.IncompleteReadError, ConnectionError):
            server.client_left.set()
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(one(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    scheme = "http" if tls is None else "https"
    server.url = f"{scheme}://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for writer in writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def plain(
    body: bytes, *, status: str = "200 OK", headers: tuple[str, ...] = (), kind: str = ""
) -> bytes:
    """A well-behaved answer with its length."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind or 'application/json'}", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def chunked(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def answering(*answers: bytes) -> Answer:
    """These answers in turn, the last one for ever."""
    left = list(answers)

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return answer


async def _read(reader: asyncio.StreamReader, connection: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *rest = head.split("\r\n")[:-2]
    headers = [(name, value.strip()) for name, _, value in (item.partition(":") for item in rest)]
    request = Request(line, headers, b"", connection)
    if request.header("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            request.body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    else:
        request.body = await reader.readexactly(int(request.header("content-length") or 0))
    return request


async def _watch(reader: asyncio.StreamReader, server: Server) -> None:
    """Sees the client hang up while it is being answered; our clients never pipeline."""
    while not reader.at_eof():
        transport_buffer = reader._buffer  # type: ignore[attr-defined]  # to peek without reading
        if transport_buffer:
            return
        await asyncio.sleep(0.005)
    server.client_left.set()
