"""The connection of one request, as those see it who wait for its answer."""

import asyncio
from collections.abc import Callable

from proxy.port.asgi import Receive


class Client:
    """Someone who may hang up."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.gone = False
        self._callback: Callable[[], object] = _nobody
        self._watch: asyncio.Task[None] | None = None

    def when_gone(self, callback: Callable[[], object]) -> None:
        """Call back once when the client hangs up; a later call replaces the callback.

        Only after the body was read. Costs a task, so only those ask who have to wait.
        """
        self._callback = callback
        if self._watch is None:
            self._watch = asyncio.create_task(self._wait())

    def close(self) -> None:
        """The request is over; nobody is called back any more."""
        if self._watch is not None:
            self._watch.cancel()

    async def _wait(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._callback()


def _nobody() -> None:
    """Nobody waits yet."""
