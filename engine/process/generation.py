"""Requests in flight that are answered as one, from the client's side."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Self

import msgspec

from engine.errors import EngineDown, EngineError, RequestRefused
from engine.process.protocol import Delta, Failed, Finished, Started

Event = Delta | Finished


class Generation:
    """First await `started`, then iterate: `Delta` and `Finished` of all choices as they come; it
    ends after the last choice. Both raise RequestRefused, EngineDown or EngineDied.

    `aclose` before the end aborts the requests in the engine; so does leaving `async with`. What
    nobody fetches is kept: no more than the `max_tokens` of the requests, whose room bounds it.
    """

    def __init__(self, num_choices: Mapping[int, int], *, on_close: Callable[[], None]) -> None:
        """`num_choices` by the requests' ids, in their order. Choices are numbered through."""
        self._events: asyncio.Queue[Started | Event | EngineError] = asyncio.Queue()
        self._early: deque[Event] = deque()
        self._num_requests = len(num_choices)
        self._firsts: dict[int, int] = {}
        self._open_choices = 0
        for request_id, number in num_choices.items():
            self._firsts[request_id] = self._open_choices
            self._open_choices += number
        self._on_close = on_close
        self._closed = False

    async def started(self) -> int:
        """All requests were admitted: the tokens of their prompts together. Cancelled or failed, it
        closes the generation."""
        prompt_tokens = num_started = 0
        try:
            while num_started < self._num_requests:
                event = await self._next()
                if isinstance(event, Started):
                    num_started += 1
                    prompt_tokens += event.prompt_tokens
                else:
                    self._early.append(event)
        except BaseException:
            await self.aclose()
            raise
        return prompt_tokens

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._closed or self._open_choices == 0:
            await self.aclose()
            raise StopAsyncIteration
        event = self._early.popleft() if self._early else await self._next()
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
        self.close()

    def close(self) -> None:
        """`aclose`, for where nothing can be awaited."""
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
        elif isinstance(event, Started) or not (first := self._firsts[event.request_id]):
            self._events.put_nowait(event)
        else:
            self._events.put_nowait(msgspec.structs.replace(event, index=first + event.index))

    def fail(self, error: EngineDown) -> None:
        """The process is gone."""
        self._events.put_nowait(error)

    async def _next(self) -> Started | Event:
        event = await self._events.get()
        if isinstance(event, EngineError):
            await self.aclose()
            raise event
        return event
