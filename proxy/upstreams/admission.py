"""At most so many requests in flight at one upstream; a few more wait their turn."""

import asyncio
from collections import deque

from proxy.errors import UpstreamBusy
from proxy.settings.upstreams import Queue


class Admission:
    """The places of one upstream. Who waits is served in the order of coming, and frees its place
    in the queue when it is cancelled."""

    __slots__ = ("_max_in_flight", "_queue", "_upstream", "_waiting", "in_flight")

    def __init__(self, upstream: str, *, max_in_flight: int, queue: Queue) -> None:
        self._upstream = upstream
        self._max_in_flight = max_in_flight
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.in_flight = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def has_room(self) -> bool:
        """The next to come need not wait."""
        return self.in_flight < self._max_in_flight

    async def enter(self) -> None:
        """Take a place, at once or after a wait. Raises UpstreamBusy. Each `enter` needs a `leave`.

        A place that comes free goes to the first in the queue, so nobody can come in between.
        """
        if self.in_flight < self._max_in_flight:
            self.in_flight += 1
            return
        if len(self._waiting) >= self._queue.length:
            raise self._busy("and the queue is full")
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._queue.timeout):
                await turn
        except BaseException as error:
            self._give_up(turn)
            if isinstance(error, TimeoutError):
                raise self._busy(f"and none was done within {self._queue.timeout:g} s") from None
            raise

    def leave(self) -> None:
        """Give the place to the first who waits, or back."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.in_flight -= 1
        assert self.in_flight >= 0

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """The place may have been given in the very moment in which the wait ended."""
        if turn.done() and not turn.cancelled():
            self.leave()
        elif turn in self._waiting:
            self._waiting.remove(turn)

    def _busy(self, rest: str) -> UpstreamBusy:
        text = f"upstream {self._upstream}: {self._max_in_flight} requests are in flight, {rest}"
        return UpstreamBusy(text, upstream=self._upstream)
