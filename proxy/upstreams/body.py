"""What bodies of answers have in common, and the simplest one."""

from abc import abstractmethod
from collections.abc import AsyncGenerator
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
