"""Timeouts of one exchange by phase, for the price of one timer an exchange."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from proxy.errors import UpstreamTimeout
from proxy.settings.upstreams import Timeout

T = TypeVar("T")


class Watchdog:
    """Bounds each wait for the upstream: up to the first byte of the body, then between two pieces,
    and all together. Time that the reader takes does not count as the upstream's silence.

    A piece that comes only moves the deadline; the timer finds that out when it fires. So a chunk
    costs no timer.
    """

    __slots__ = ("_cancelling", "_loop", "_overdue", "_phase", "_started_at", "_task", "_timeout",
                 "_timer", "_upstream", "_waiting_since")  # fmt: skip

    def __init__(self, timeout: Timeout, *, upstream: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._upstream = upstream
        self._started_at = self._loop.time()
        self._waiting_since = 0.0
        self._phase = "first_byte"
        self._overdue = ""
        self._task: asyncio.Task[object] | None = None  # the one that waits
        self._cancelling = 0
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, piece: Awaitable[T]) -> T:
        """Await it. Raises `UpstreamTimeout` with the phase that took too long."""
        self._enter()
        try:
            return await piece
        except asyncio.CancelledError:
            task, self._task = self._task, None
            if self._overdue and task is not None and task.uncancel() <= self._cancelling:
                raise self._timed_out() from None
            raise
        finally:
            self._task = None

    def began(self) -> None:
        """The first byte of the body has come."""
        self._phase = "idle"
        if self._timer is not None and self._timer.when() > self._loop.time() + self._timeout.idle:
            self.close()  # the next wait may be due sooner, and arms it again

    def close(self) -> None:
        """The exchange is over. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self) -> None:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._waiting_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._due_at(), self._check)

    def _due_at(self) -> float:
        """Of the wait under way. Of two waits of one phase, the later is due later."""
        if self._phase == "idle":
            due_at = self._waiting_since + self._timeout.idle
        else:
            due_at = self._started_at + self._timeout.first_byte
        return min(due_at, self._started_at + self._timeout.total)

    def _check(self) -> None:
        self._timer = None
        if self._task is None:
            return  # nobody waits; the next wait arms it again
        now, due_at = self._loop.time(), self._due_at()
        if now < due_at:
            self._timer = self._loop.call_at(due_at, self._check)
            return
        is_total = now >= self._started_at + self._timeout.total
        self._overdue = "total" if is_total else self._phase
        self._task.cancel()

    def _timed_out(self) -> UpstreamTimeout:
        limit_s: float = getattr(self._timeout, self._overdue)
        text = f"upstream {self._upstream}: {_WAITS[self._overdue]} {limit_s:g} s"
        return UpstreamTimeout(text, upstream=self._upstream, phase=self._overdue)


_WAITS = {
    "first_byte": "no answer within",
    "idle": "silent for more than",
    "total": "not finished within",
}
