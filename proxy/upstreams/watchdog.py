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

    __slots__ = ("_cancelling", "_due_at", "_loop", "_overdue", "_phase", "_started_at", "_task",
                 "_timeout", "_timer", "_upstream")  # fmt: skip

    def __init__(self, timeout: Timeout, *, upstream: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._upstream = upstream
        self._started_at = self._loop.time()
        self._due_at = 0.0
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

    def close(self) -> None:
        """The exchange is over. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _enter(self) -> None:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        total_at = self._started_at + self._timeout.total
        if self._phase == "idle":
            due_at = self._loop.time() + self._timeout.idle
        else:
            due_at = self._started_at + self._timeout.first_byte
        self._due_at = min(due_at, total_at)
        if self._timer is None or self._timer.when() > self._due_at:
            self._arm()

    def _arm(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._due_at, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._task is None:
            return  # nobody waits; the next wait arms it again
        now = self._loop.time()
        if now < self._due_at:
            self._arm()
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
