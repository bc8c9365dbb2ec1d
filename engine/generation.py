"""One request in flight, from the client's side."""

import asyncio
from collections.abc import Callable
from typing import Self

from engine.errors import EngineDown, EngineError, RequestRefused
from engine.protocol import Delta, Failed, Finished, Started

Event = Started | Delta | Finished


class Generation:
    """An async iterator: `Started`, then `Delta` and `Finished` of all choices in any order; it
    ends after the last choice. Raises RequestRefused, EngineDown or EngineDied.

    `aclose` before the end aborts the request in the engine; so does leaving `async with`.
    """

    def __init__(self, *, num_choices: int, on_close: Callable[[], None]) -> None:
        self._events: asyncio.Queue[Event | EngineError] = asyncio.Queue()
        self._open_choices = num_choices
        self._on_close = on_close
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._closed or self._open_choices == 0:
            await self.aclose()
            raise StopAsyncIteration
        event = await self._events.get()
        match event:
            case EngineError():
                await self.aclose()
                raise event
            case Finished():
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

    @property
    def done(self) -> bool:
        """Every choice has been delivered."""
        return self._open_choices == 0

    def feed(self, event: Event | Failed) -> None:
        """From the worker."""
        if isinstance(event, Failed):
            refused = RequestRefused(event.message, param=event.param, code=event.code)
            self._events.put_nowait(refused)
        else:
            self._events.put_nowait(event)

    def fail(self, error: EngineDown) -> None:
        """The process is gone."""
        self._events.put_nowait(error)
