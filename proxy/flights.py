"""Identical requests in flight: one upstream request, and all who ask listen to it.

    Flights ── key ──> Flight <── listens ── Listener (one a client)
                          ^
                          └── fills ── the task that talks to the upstream (`proxy.forwarding`)

The task belongs to the flight, not to the client that caused it: the first client may leave and the
others go on. A late listener gets at once what has already arrived, then follows live.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec

from index.entry import Snapshot
from proxy.answer.grammar import Frame
from proxy.answer.payload import Payload
from proxy.call import Headers
from proxy.errors import ClientLeft, UpstreamBroken, UpstreamError


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when the upstream's answer begins."""

    status: int
    headers: Headers
    """As the upstream sent them, but for the connection's own."""
    streaming: bool
    upstream: str


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a flight ended. At most one of `body` and frames was delivered."""

    body: bytes | None = None
    """The whole answer, when it was not a stream."""
    payload: Payload | None = None
    """The recorded answer, when it was complete."""
    error: UpstreamError | None = None
    stored: bool = False


class Flight:
    """The buffer between one upstream answer and its listeners.

    Filled by one task through `begin`, `append` and `end`; read through `listen`.
    """

    def __init__(self, key: str, *, snapshot: Snapshot, tags: frozenset[str]) -> None:
        self.key = key
        self.snapshot = snapshot
        self.tags = tags
        self.head: Head | None = None
        self.frames: list[Frame] = []
        self.ending: Ending | None = None
        self.task: asyncio.Task[None] | None = None
        self.finish_alone = False
        """Go on without listeners (policy `on_disconnect: finish`, background refresh)."""
        self.doomed = False
        """Cancelled because nobody listens any more; no longer to be joined."""
        self.listeners: set[Listener] = set()

    def listen(self) -> "Listener":
        """A new listener. It must be closed (`leave`), or the flight never ends early."""
        listener = Listener(self)
        self.listeners.add(listener)
        return listener

    def begin(self, head: Head) -> None:
        """The upstream's status and headers are known."""
        assert self.head is None
        self.head = head
        self._wake()

    def append(self, frames: Sequence[Frame]) -> None:
        """More of the stream has come."""
        self.frames.extend(frames)
        self._wake()

    def end(self, ending: Ending) -> None:
        """No more will come. A no-op after the first time."""
        if self.ending is None:
            self.ending = ending
            self._wake()

    def forget(self, listener: "Listener") -> None:
        """A listener left. The last one ends the upstream request, unless it may go on alone."""
        self.listeners.discard(listener)
        if self.listeners or self.finish_alone or self.ending is not None:
            return
        self.doomed = True
        if self.task is not None:
            self.task.cancel()

    def _wake(self) -> None:
        for listener in self.listeners:
            listener.wake()


class Listener:
    """One client's view of a flight."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._news = asyncio.Event()
        self._left = False

    def wake(self) -> None:
        """Something of the flight changed."""
        self._news.set()

    def leave(self) -> None:
        """The client is gone, or has its answer. Idempotent; a waiting method raises ClientLeft."""
        if not self._left:
            self._left = True
            self._news.set()
            self._flight.forget(self)

    async def head(self) -> Head:
        """Wait for status and headers. Raises UpstreamError when none came."""
        flight = self._flight
        while flight.head is None:
            if flight.ending is not None:
                raise _error_of(flight.ending)
            await self._wait()
        return flight.head

    async def ending(self) -> Ending:
        """Wait for the end. Raises the flight's UpstreamError."""
        while self._flight.ending is None:
            await self._wait()
        if self._flight.ending.error is not None:
            raise self._flight.ending.error
        return self._flight.ending

    async def frames(self) -> AsyncIterator[Sequence[Frame]]:
        """The stream from its beginning, in the pieces in which it is there. Raises UpstreamError
        where it breaks off."""
        flight = self._flight
        position = 0
        while True:
            if position < len(flight.frames):
                news = flight.frames[position:]
                position += len(news)
                yield news
            elif flight.ending is not None:
                if flight.ending.error is not None:
                    raise flight.ending.error
                return
            else:
                await self._wait()

    async def _wait(self) -> None:
        if not self._left:
            self._news.clear()
            await self._news.wait()
        if self._left:
            raise ClientLeft


class Flights:
    """The flights that others may join, by key."""

    def __init__(self) -> None:
        self._open: dict[str, Flight] = {}
        self._flights: set[Flight] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, key: str, *, snapshot: Snapshot, tags: frozenset[str]) -> Flight | None:
        """The flight that answers this request too.

        Only one that saw the same purges: tags that its answer will name are not known yet, so
        after any purge a new request must not listen to an answer that began before. And only one
        that carries all tags of the request, or the entry would lack them.
        """
        flight = self._open.get(key)
        if flight is None or flight.doomed or flight.ending is not None:
            return None
        if flight.snapshot != snapshot or not tags <= flight.tags:
            return None
        return flight

    def start(
        self, flight: Flight, run: Callable[[Flight], Awaitable[None]], *, open_to_others: bool
    ) -> None:
        """Start the task that fills a flight. `run` must call `flight.end` in every case."""
        if open_to_others:
            self._open[flight.key] = flight
        flight.task = asyncio.create_task(self._run(flight, run), name=f"flight {flight.key[:8]}")
        self._tasks.add(flight.task)
        flight.task.add_done_callback(self._tasks.discard)

    def has(self, key: str) -> bool:
        """An answer to this key is being made."""
        return key in self._open

    def listeners(self) -> tuple[Listener, ...]:
        """All who listen to any flight."""
        return tuple(one for flight in self._flights for one in flight.listeners)

    def __len__(self) -> int:
        return len(self._tasks)

    async def settle(self) -> None:
        """Returns when those that are in flight now have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def abandon(self, error: UpstreamError) -> None:
        """End all at once: listeners get the error, upstream requests are cancelled."""
        for flight in self._flights:
            flight.end(Ending(error=error))
        for task in self._tasks:
            task.cancel()

    async def close(self, *, grace_s: float) -> None:
        """Wait for what is in flight, then cancel the rest."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, flight: Flight, run: Callable[[Flight], Awaitable[None]]) -> None:
        self._flights.add(flight)
        try:
            await run(flight)
        finally:
            self._flights.discard(flight)
            if self._open.get(flight.key) is flight:
                del self._open[flight.key]
            flight.end(Ending(error=UpstreamBroken("the request was cancelled", upstream="")))


def _error_of(ending: Ending) -> UpstreamError:
    return ending.error or UpstreamBroken("the answer ended before it began", upstream="")
