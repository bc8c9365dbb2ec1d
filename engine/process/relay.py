"""One worker process for several clients, each in a process of its own.

    EngineClient ── Unix socket ──┐
    EngineClient ── Unix socket ──┼── Relay ── EngineClient ── worker process
    EngineClient ── Unix socket ──┘

The protocol is that of the worker but for `Configure`, which the relay sends. A client that hangs
up aborts its requests. When the worker dies the connections are closed: clients see a death, as if
the worker were theirs, and come back while it restarts.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from pathlib import Path

import msgspec

from engine.config import EngineConfig
from engine.errors import EngineDown, ModelUnusable, RequestRefused
from engine.process.client import EngineClient
from engine.process.generation import Generation
from engine.process.protocol import (
    Abort,
    Failed,
    FrameBuffer,
    FromWorker,
    Generate,
    Inspect,
    Loading,
    Outline,
    Profile,
    Purge,
    Started,
    ToWorker,
    Unusable,
    frame,
)

_RECEIVE_BYTES = 1 << 16
_LOAD_DEADLINE_S = 24 * 3600.0
"""Only a death or a failure ends the wait for a model: those are told apart from slowness."""


class Relay:
    """Owns the worker process and the socket; `close` gives both back."""

    def __init__(self, config: EngineConfig, path: Path) -> None:
        """`path`: of the Unix socket. The folder belongs to who may use the engine."""
        self._engine = EngineClient(config, on_progress=self._tell_progress)
        self._path = path
        self._server: asyncio.Server | None = None
        self._loading: Loading | None = None
        self._clients: set[_Client] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._unused = asyncio.Event()

    async def start(self) -> None:
        """Returns at once; the model loads in the background."""
        await self._engine.start()
        self._server = await asyncio.start_unix_server(self._accept, path=self._path)

    async def ready(self) -> None:
        """Waits while the model loads. Raises ModelUnusable, EngineDown."""
        await self._engine.ready(timeout_s=_LOAD_DEADLINE_S)

    @property
    def worker_pid(self) -> int | None:
        """Of the process that runs now."""
        return self._engine.worker_pid

    async def unused(self) -> None:
        """Returns when the last client has hung up; at once where there is none."""
        while self._clients:
            self._unused.clear()
            await self._unused.wait()

    async def close(self) -> None:
        """Ends the process; requests in flight fail. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._engine.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(_Client(self._engine, reader, writer)))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, client: "_Client") -> None:
        self._clients.add(client)
        if self._loading is not None and self._loading.downloading:
            client.write(self._loading)
        try:
            client.write(await self._engine.ready(timeout_s=_LOAD_DEADLINE_S))
            await _first({client.serve(), self._engine.down()})
        except ModelUnusable as error:
            client.write(Unusable(message=str(error)))
        except EngineDown:
            pass  # closing the connection says it
        finally:
            self._clients.discard(client)
            await client.close()
            if not self._clients:
                self._unused.set()

    def _tell_progress(self, loading: Loading) -> None:
        self._loading = loading
        for client in self._clients:
            client.write(loading)


async def _first(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Returns when one of them has; the others are cancelled."""
    tasks = {asyncio.ensure_future(work) for work in works}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Client:
    """One connection, and the requests that came over it."""

    def __init__(
        self, engine: EngineClient, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._engine = engine
        self._reader = reader
        self._writer = writer
        self._requests: dict[int, asyncio.Task[None]] = {}
        self._asked: set[asyncio.Task[None]] = set()

    def write(self, message: FromWorker) -> None:
        """Queued; lost when the client has hung up."""
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def serve(self) -> None:
        """Returns when the client has hung up, or the worker has died."""
        decoder = msgspec.msgpack.Decoder(ToWorker)
        frames = FrameBuffer()
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(_RECEIVE_BYTES):
                for body in frames.feed(data):
                    self._obey(decoder.decode(body))

    async def close(self) -> None:
        """Abort what still runs."""
        tasks = [*self._requests.values(), *self._asked]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._writer.close()

    def _obey(self, message: ToWorker) -> None:
        match message:
            case Generate():
                self._begin(message)
            case Abort(request_id=request_id):
                task = self._requests.get(request_id)
                if task is not None:
                    task.cancel()
            case Inspect():
                self._ask(self._inspect())
            case Purge():
                self._ask(self._purge(message))
            case Profile():
                self._ask(self._profile(message))
            case Outline():
                self._ask(self._outline(message))
            case _:
                raise AssertionError(f"not for a client to say: {message}")

    def _begin(self, message: Generate) -> None:
        try:
            generation = self._engine.generate(message.request)
        except EngineDown:
            return  # the connection is about to be closed
        request_id = message.request_id
        task = asyncio.create_task(self._pass_on(request_id, generation))
        self._requests[request_id] = task
        task.add_done_callback(lambda _: self._end(request_id, generation))

    def _end(self, request_id: int, generation: Generation) -> None:
        """Also of a task that was cancelled before its first step, which has closed nothing."""
        del self._requests[request_id]
        generation.close()

    async def _pass_on(self, request_id: int, generation: Generation) -> None:
        """The worker counts the requests of all clients: ids are put back on the way."""
        try:
            async with generation:
                prompt_tokens = await generation.started()
                self.write(Started(request_id=request_id, prompt_tokens=prompt_tokens))
                async for event in generation:
                    self.write(msgspec.structs.replace(event, request_id=request_id))
        except RequestRefused as error:
            self.write(
                Failed(
                    request_id=request_id,
                    message=error.message,
                    param=error.param,
                    code=error.code,
                )
            )
        except EngineDown:
            pass  # the connection is about to be closed

    def _ask(self, asking: Coroutine[None, None, None]) -> None:
        """Answers carry no id: they come in the order of the questions."""
        asked = asyncio.create_task(asking)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)

    async def _inspect(self) -> None:
        with contextlib.suppress(EngineDown):
            self.write(await self._engine.inspect())

    async def _profile(self, wanted: Profile) -> None:
        with contextlib.suppress(EngineDown):
            self.write(await self._engine.profile(wanted))

    async def _outline(self, wanted: Outline) -> None:
        with contextlib.suppress(EngineDown):
            self.write(await self._engine.outline(wanted))

    async def _purge(self, purge: Purge) -> None:
        self.write(await self._engine.purge(purge))
