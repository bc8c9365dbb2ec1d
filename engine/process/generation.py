"""One request in flight, from the client's side."""

import asyncio
from collections.abc import Callable
from typing import Self

from engine.errors import EngineDown, EngineError, RequestRefused
from engine.process.protocol import Delta, Failed, Finished, Started

Event = Delta | Finished


class Generation:
    """First await `started`, then iterate: `Delta` and `Finished` of all choices as they come; it
    ends after the last choice. Both raise RequestRefused, EngineDown or EngineDied.

    `aclose` before the end aborts the request in the engine; so does leaving `async with`.
    """

    def __init__(self, *, num_choices: int, on_close: Callable[[], None]) -> None:
        self._events: asyncio.Queue[Started | Event | EngineError] = asyncio.Queue()
        self._open_choices = num_choices
        self._on_close = on_close
        self._closed = False

    async def started(self) -> Started:
        """The request was admitted. Cancelled or failed, it closes the generation."""
        try:
            event = await self._next()
        except BaseException:
            await self.aclose()
            raise
        assert isinstance(event, Started), event
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._closed or self._open_choices == 0:
            await self.aclose()
            raise StopAsyncIteration
        event = await self._next()
        assert not isinstance(event, Started), event
        if isinstance(event, Finished):
            self._open_choices -= 1
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            self._on_close()
            # Whoever still waits for the next event, in another task, is let go.
            self._events.put_nowait(EngineDown("the request was closed"))

    @property
    def done(self) -> bool:
        """Every choice has been delivered."""
        return self._open_choices == 0

    def feed(self, event: Started | Event | Failed) -> None:
        """From the worker."""
        if isinstance(event, Failed):
            refused = RequestRefused(event.message, param=event.param, code=event.code)
            self._events.put_nowait(refused)
        else:
            self._events.put_nowait(event)

    def fail(self, error: EngineDown) -> None:
        """The process is gone."""
        self._events.put_nowait(error)

    async def _next(self) -> Started | Event:
        event = await self._events.get()
        if isinstance(event, EngineError):
            await self.aclose()
            raise event
        return event
