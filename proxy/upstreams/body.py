"""What bodies of answers have in common, and the simplest ones."""

from abc import abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any


class Body(AsyncGenerator[bytes, None]):
    """A body that owns something. Not written as a generator function: closing one of those before
    its first step runs nothing of it, so a connection would stay open."""

    @abstractmethod
    async def __anext__(self) -> bytes: ...

    @abstractmethod
    async def aclose(self) -> None:
        """Give back what it owns. Idempotent, also after the end."""

    async def asend(self, _value: None, /) -> bytes:
        """The next piece; nothing can be sent in."""
        return await self.__anext__()

    async def athrow(
        self,
        _kind: type[BaseException] | BaseException,
        _value: BaseException | object = None,
        _traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """Not for readers: nothing here is waiting for an exception from outside."""
        raise NotImplementedError


class Buffered(Body):
    """A body that is all there."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __anext__(self) -> bytes:
        data, self._data = self._data, b""
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        """Nothing is owned; the rest is dropped."""
        self._data = b""


class Held(Body):
    """A body of which some pieces have been read already. Who made it may be told when it is over,
    whether it ended, broke or was closed: `on_end`, called once."""

    def __init__(self, pieces: Iterable[bytes], rest: AsyncGenerator[bytes, None]) -> None:
        self.on_end: Callable[[], None] | None = None
        self._held = deque(pieces)
        self._rest = rest

    async def __anext__(self) -> bytes:
        if self._held:
            return self._held.popleft()
        try:
            return await self._next()
        except BaseException:
            self._over()
            raise

    async def aclose(self) -> None:
        """The pieces are dropped."""
        self._held.clear()
        try:
            await self._rest.aclose()
        finally:
            self._over()

    def _next(self) -> Awaitable[bytes]:
        """The next piece that nobody holds yet."""
        return self._rest.__anext__()

    def _over(self) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()
