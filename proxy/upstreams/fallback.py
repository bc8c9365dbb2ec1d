"""Which upstream answers: the first that can, with retries before the first byte.

The list is walked in order; a failure leads to the next upstream at once. When all have failed and
retries are left, the walk begins again after a pause, without those that said they need longer.
"""

import logging
import random
import time
from asyncio import sleep as asyncio_sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from proxy.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.upstreams.base import Upstream, UpstreamRequest, UpstreamResponse
from proxy.upstreams.breaker import Breaker
from proxy.upstreams.opening import opened

log = logging.getLogger("rejoinder.upstream")

_RETRIED = frozenset({408, 409, 429})
"""Beside 5xx: statuses of which another try may be better."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 4.0
_LONGEST_RETRY_AFTER_S = 10.0
"""An upstream that asks for more is not tried again by the same request."""

Sleep = Callable[[float], Awaitable[None]]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try, or one that was not made because the breaker is open."""

    upstream: str
    status: int | None
    """None: there was no response."""
    reason: str
    """What came, without secrets."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and all tries that led to it, its own last."""

    response: UpstreamResponse
    attempts: tuple[Attempt, ...]


class RetryBudget:
    """Retries may be a share of all requests, so that they cannot multiply an overload."""

    __slots__ = ("_percent", "_saved_percent")

    FIRST_RETRIES = 10
    """There before any request was made."""
    MAX_RETRIES = 100
    """Saved up at most."""

    def __init__(self, *, percent: int = 20) -> None:
        self._percent = percent
        self._saved_percent = 100 * self.FIRST_RETRIES

    def earn(self) -> None:
        """A request was made."""
        self._saved_percent = min(100 * self.MAX_RETRIES, self._saved_percent + self._percent)

    def spend(self) -> bool:
        """Take one retry, if there is one."""
        if self._saved_percent < 100:
            return False
        self._saved_percent -= 100
        return True


class Route(Protocol):
    """What a sender looks at of a route."""

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """In order of preference; at least one."""
        ...

    @property
    def retries(self) -> int:
        """How often the walk may begin again."""
        ...


class Sender:
    """Sends the requests of one config, and remembers how its upstreams are doing."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = asyncio_sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._budget = RetryBudget()
        self._breakers: dict[str, Breaker] = {}

    async def send(
        self, route: Route, request: Callable[[Upstream], UpstreamRequest]
    ) -> UpstreamResponse:
        """As `send_first`; the tries before the last are logged."""
        for upstream in route.upstreams:
            if upstream.name not in self._breakers:
                self._breakers[upstream.name] = Breaker(clock=self._clock)
        answered = await send_first(
            route.upstreams,
            request,
            retries=route.retries,
            budget=self._budget,
            breakers=self._breakers,
            sleep=self._sleep,
            jitter=self._jitter,
        )
        for attempt in answered.attempts[:-1]:
            log.info("another try after %s: %s", attempt.upstream, attempt.reason)
        return answered.response

    def open_breakers(self) -> tuple[str, ...]:
        """Names of the upstreams that nothing is sent to at the moment."""
        return tuple(name for name, breaker in self._breakers.items() if breaker.is_open)


async def send_first(
    upstreams: Sequence[Upstream],
    request: Callable[[Upstream], UpstreamRequest],
    *,
    retries: int,
    budget: RetryBudget,
    breakers: Mapping[str, Breaker],
    sleep: Sleep,
    jitter: Callable[[], float],
) -> Answered:
    """The first answer that is final: anything but 408, 409, 429 and 5xx. When there is none, the
    last upstream's response as it is, or its `UpstreamError`.

    Streams are returned once their first event has come (`proxy.upstreams.opening`).
    `jitter` gives numbers in [0, 1).
    """
    budget.earn()
    walk = _Walk(request, breakers)
    candidates = list(upstreams)
    try:
        for number in range(1 + retries):
            if number > 0:
                candidates = [upstream for upstream in candidates if upstream.name in walk.again]
                if not candidates or not budget.spend():
                    break
                pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (number - 1))
                wanted_s = min(walk.again[upstream.name] for upstream in candidates)
                await sleep(max(wanted_s, pause_s * (0.5 + 0.5 * jitter())))
            for upstream in candidates:
                if await walk.try_one(upstream):
                    return walk.answered()
    except BaseException:
        await walk.drop()
        raise
    return walk.answered()


class _Walk:
    """The tries of one request. Owns the last response until it is handed out."""

    def __init__(
        self, request: Callable[[Upstream], UpstreamRequest], breakers: Mapping[str, Breaker]
    ) -> None:
        self._request = request
        self._breakers = breakers
        self._attempts: list[Attempt] = []
        self._response: UpstreamResponse | None = None
        self._error: UpstreamError | None = None
        self.again: dict[str, float] = {}
        """Upstreams that may be tried again, and the least seconds to wait for each."""

    async def try_one(self, upstream: Upstream) -> bool:
        """True when the answer is final. What came before is given up."""
        breaker = self._breakers.get(upstream.name)
        if breaker is not None and not breaker.allow():
            self._skipped(upstream)
            return False
        request = self._request(upstream)
        self.again.pop(upstream.name, None)
        await self.drop()
        try:
            response = await upstream.send(request)
            if request.stream:
                response = await opened(response)
        except UpstreamError as error:
            if breaker is not None:
                breaker.failed()
            self._failed(upstream, error, can_repeat=isinstance(request.body, bytes))
            return not isinstance(request.body, bytes)
        self._response = response
        self._note(upstream, response.status, f"status {response.status}")
        _count(breaker, response.status)
        if not isinstance(request.body, bytes) or not _is_retried(response):
            return True
        wait_s = _retry_after_s(response)
        if wait_s <= _LONGEST_RETRY_AFTER_S:
            self.again[upstream.name] = wait_s
        return False

    def answered(self) -> Answered:
        """What is to be returned; raises the last error where there is no response."""
        if self._response is None:
            assert self._error is not None
            raise self._error
        return Answered(response=self._response, attempts=tuple(self._attempts))

    async def drop(self) -> None:
        """Give up the response so far."""
        response, self._response = self._response, None
        if response is not None:
            await response.body.aclose()

    def _skipped(self, upstream: Upstream) -> None:
        text = f"upstream {upstream.name}: left alone for a while, most requests to it failed"
        self._note(upstream, None, text)
        if self._response is None and self._error is None:
            self._error = UpstreamUnreachable(text, upstream=upstream.name)

    def _failed(self, upstream: Upstream, error: UpstreamError, *, can_repeat: bool) -> None:
        self._error = error
        self._note(upstream, None, str(error))
        has_waited = isinstance(error, UpstreamTimeout) and error.phase != "connect"
        if can_repeat and not has_waited:
            self.again[upstream.name] = 0.0

    def _note(self, upstream: Upstream, status: int | None, reason: str) -> None:
        self._attempts.append(Attempt(upstream=upstream.name, status=status, reason=reason))


def _count(breaker: Breaker | None, status: int) -> None:
    if breaker is None or status == 429:  # busy is not broken
        return
    if status >= 500:
        breaker.failed()
    else:
        breaker.succeeded()


def _is_retried(response: UpstreamResponse) -> bool:
    if response.status not in _RETRIED and response.status < 500:
        return False
    return _header(response, b"x-should-retry") != b"false"


def _retry_after_s(response: UpstreamResponse) -> float:
    """Seconds that the upstream asks for; infinite for a date, which is never worth waiting for."""
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = _header(response, name)
        if value:
            try:
                return max(0.0, float(value) * unit_s)
            except ValueError:
                return float("inf")
    return 0.0


def _header(response: UpstreamResponse, name: bytes) -> bytes:
    return next((value for header, value in response.headers if header == name), b"")
