"""Identical requests in flight: one upstream request, and all who ask listen to it.

    Flights ── key ──> Flight <── listens ── Listener (one a client)
                          ^
                          └── fills ── the task that asks the upstream (`proxy.misses.forwarding`)

The task belongs to the flight, not to the client that caused it: the first client may leave and the
others go on. A late listener gets at once what has already arrived, then follows live.
"""

import asyncio
from collections.abc import Awaitable, Callable

from index.entry import Snapshot
from proxy.errors import UpstreamBroken, UpstreamError
from proxy.misses.flight import Ending, Flight, Listener


class Flights:
    """The flights that others may join, by key."""

    def __init__(self) -> None:
        self._open: dict[str, Flight] = {}
        self._flights: set[Flight] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, key: str, *, snapshot: Snapshot, tags: frozenset[str]) -> Flight | None:
        """The flight that answers this request too.

        Only one that saw the same purges: tags that its answer will name are not known yet, so
        after any purge a new request must not listen to an answer that began before. Only one
        that carries all tags of the request, or the entry would lack them. And only one that still
        has its beginning.
        """
        flight = self._open.get(key)
        if flight is None or flight.doomed or flight.ending is not None or not flight.keeps_all:
            return None
        if flight.snapshot != snapshot or not tags <= flight.tags:
            return None
        return flight

    def start(
        self, flight: Flight, run: Callable[[Flight], Awaitable[None]], *, open_to_others: bool
    ) -> None:
        """Start the task that fills a flight. `run` must call `flight.end` in every case."""
        if open_to_others:
            self._open.update(dict.fromkeys(flight.keys, flight))
        name = f"flight {flight.keys[0][:8]}"
        flight.task = asyncio.create_task(self._run(flight, run), name=name)
        self._tasks.add(flight.task)
        flight.task.add_done_callback(self._tasks.discard)

    def has(self, key: str) -> bool:
        """An answer to this key is being made."""
        return key in self._open

    def listeners(self) -> tuple[Listener, ...]:
        """All who listen to any flight."""
        return tuple(one for flight in self._flights for one in flight.listeners)

    def held_bytes(self) -> int:
        """What all flights keep of the streams that they carry."""
        return sum(flight.tape.held_bytes for flight in self._flights)

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
            for key in flight.keys:
                if self._open.get(key) is flight:
                    del self._open[key]
            flight.end(Ending(error=UpstreamBroken("the request was cancelled", upstream="")))
