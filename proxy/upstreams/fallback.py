"""Which upstream answers: the first that can, with retries before the first byte.

The list is walked in order; a failure leads to another server of the same upstream, which is a
retry, then to the next upstream, which is none. When all have failed and retries are left, the walk
begins again after a pause, without those that said they need longer.
"""

import logging
import random
from asyncio import sleep as asyncio_sleep
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from proxy.errors import UpstreamBusy, UpstreamError, UpstreamRestarting, UpstreamTimeout
from proxy.upstreams.attempt import Attempt, Count, Journal, attempt
from proxy.upstreams.base import Upstream, UpstreamRequest, UpstreamResponse
from proxy.upstreams.budget import RetryBudget
from proxy.upstreams.hedging import hedged
from proxy.upstreams.pool import Pool, ServerState

log = logging.getLogger("rejoinder.upstream")

_RETRIED = frozenset({408, 409, 429})
"""Beside 5xx: statuses of which another try may be better."""
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 4.0
_LONGEST_RETRY_AFTER_S = 10.0
"""An upstream that asks for more is not tried again by the same request."""

Sleep = Callable[[float], Awaitable[None]]
Ask = Callable[[Upstream], UpstreamRequest]


class Route(Protocol):
    """What a sender looks at of a route."""

    @property
    def upstreams(self) -> tuple[Upstream, ...]:
        """In order of preference; at least one."""
        ...

    @property
    def retries(self) -> int:
        """How often the walk may begin again, and how many other servers it may go on to."""
        ...

    @property
    def hedge_after_s(self) -> float | None:
        """When a stream without a first event is asked for a second time; None: never."""
        ...


class Sender:
    """Sends the requests of one config, and remembers how its upstreams are doing."""

    def __init__(
        self,
        pools: Mapping[str, Pool],
        *,
        budget: RetryBudget,
        count: Count,
        sleep: Sleep = asyncio_sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`pools` by the upstreams' names; `jitter` gives numbers in [0, 1)."""
        self.pools = pools
        self._budget = budget
        self._count = count
        self._sleep = sleep
        self._jitter = jitter

    async def send(self, route: Route, request: Ask) -> UpstreamResponse:
        """The first answer that is final: anything but 408, 409, 429 and 5xx. When there is none,
        the last upstream's response, or its `UpstreamError`. Where retries were made in vain, the
        response tells the client's SDK to make none of its own, lest they multiply.

        Streams are returned once their first event has come, other answers once they are whole
        (`proxy.upstreams.opening`), so that a failure in between leads to another attempt.
        """
        self._budget.earn()
        walk = _Walk(route, request, self.pools, self._budget, Journal(self._count))
        try:
            if await walk.go():
                return walk.answer()
            for number in range(1, 1 + route.retries):
                if not walk.again or not self._budget.spend():
                    break
                pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (number - 1))
                wanted_s = min(walk.again.values())
                await self._sleep(max(wanted_s, pause_s * (0.5 + 0.5 * self._jitter())))
                if await walk.go():
                    return walk.answer()
        except BaseException:
            await walk.drop()
            raise
        answer = walk.answer()
        return _without_retry(answer) if route.retries and walk.again else answer

    async def relay(self, upstream: Upstream, request: UpstreamRequest) -> UpstreamResponse:
        """One attempt at one upstream, for answers and bodies that are streamed through: only a
        server that cannot be reached leads to another one. Raises `UpstreamError`."""
        journal = Journal(self._count)
        return await attempt(self.pools[upstream.name], request, journal, settle=False)

    def states(self) -> tuple[ServerState, ...]:
        """How all servers are doing."""
        return tuple(state for pool in self.pools.values() for state in pool.states())


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt brought: a response or an error."""

    pool: Pool
    response: UpstreamResponse | None = None
    error: UpstreamError | None = None
    was_sent: bool = True

    @property
    def is_final(self) -> bool:
        return self.response is not None and not _is_retried(self.response)

    @property
    def is_worth_another(self) -> bool:
        """Another server of the same upstream may do better: one did fail, and not by being slow,
        which would be the same with all."""
        if self.response is not None:
            return not self.is_final
        is_late = isinstance(self.error, UpstreamRestarting) and self.error.late
        has_waited = isinstance(self.error, UpstreamTimeout) and self.error.phase != "connect"
        return not (has_waited or is_late) and not isinstance(self.error, UpstreamBusy)

    @property
    def repeat_after_s(self) -> float | None:
        """When the same upstream may be tried again; None: not by this request."""
        wait_s = 0.0 if self.response is None else _retry_after_s(self.response)
        is_soon = wait_s <= _LONGEST_RETRY_AFTER_S
        return wait_s if self.is_worth_another and is_soon else None


class _Walk:
    """The tries of one request. Owns the last response until it is handed out."""

    def __init__(
        self,
        route: Route,
        request: Ask,
        pools: Mapping[str, Pool],
        budget: RetryBudget,
        journal: Journal,
    ) -> None:
        self._upstreams: Sequence[Upstream] = route.upstreams
        self._hedge_after_s = route.hedge_after_s
        self._moves_left = route.retries
        self._request = request
        self._pools = pools
        self._budget = budget
        self._journal = journal
        self._left: list[Upstream] = []
        self._latest: _Result | None = None
        self._last: _Result | None = None  # the latest of a request that was really sent, if any
        self.again: dict[str, float] = {}
        """Upstreams that may be tried again, and the least seconds to wait for each."""

    async def go(self) -> bool:
        """Walk the list once; the second time only those of `again`. True: the answer is final."""
        if self._last is None:
            self._left = list(self._upstreams)
        else:
            self._left = [one for one in self._upstreams if one.name in self.again]
        while self._left:
            upstream = self._left.pop(0)
            if await self._try(upstream):
                return True
            while self._may_move(upstream):
                if await self._try(upstream):
                    return True
        return False

    def answer(self) -> UpstreamResponse:
        """The last response. Raises the last error where there is none."""
        _log(self._journal.attempts)
        assert self._last is not None
        if self._last.response is None:
            assert self._last.error is not None
            raise self._last.error
        return self._last.response

    async def drop(self) -> None:
        """Give up the response so far."""
        if self._last is not None:
            await _drop(self._last)

    def _may_move(self, upstream: Upstream) -> bool:
        """On to another server of the same upstream: a retry, but without a pause."""
        pool = self._pools[upstream.name]
        latest = self._latest
        if self._moves_left <= 0 or latest is None or latest.pool is not pool:
            return False
        if not (latest.is_worth_another and pool.has_other(self._journal.tried)):
            return False
        if not self._budget.spend():
            return False
        self._moves_left -= 1
        return True

    async def _try(self, upstream: Upstream) -> bool:
        """True: the answer is final."""
        request = self._request(upstream)
        self.again.pop(upstream.name, None)
        if self._hedge_after_s is None or not request.stream:
            return await self._take(await self._result(upstream, request))
        results = await hedged(
            self._result(upstream, request),
            lambda: self._second(upstream),
            after_s=self._hedge_after_s,
            is_good=lambda result: result.is_final,
            drop=_drop,
        )
        finals = [await self._take(result) for result in results]
        return finals[-1]

    def _second(self, upstream: Upstream) -> Coroutine[Any, Any, _Result] | None:
        """Another server of the same upstream, or the next upstream, as long as nobody waits there
        and the budget has a retry."""
        pool = self._pools[upstream.name]
        if not (pool.admission.has_room and pool.has_other(self._journal.tried)):
            if not self._left or not self._pools[self._left[0].name].admission.has_room:
                return None
            upstream = self._left[0]
        if not self._budget.spend():
            return None
        if self._left and upstream is self._left[0]:
            self._left.pop(0)
        return self._result(upstream, self._request(upstream))

    async def _result(self, upstream: Upstream, request: UpstreamRequest) -> _Result:
        pool = self._pools[upstream.name]
        num_tried = len(self._journal.tried)
        try:
            response = await attempt(pool, request, self._journal)
        except UpstreamError as error:
            return _Result(pool=pool, error=error, was_sent=len(self._journal.tried) > num_tried)
        return _Result(pool=pool, response=response)

    async def _take(self, result: _Result) -> bool:
        """What came before is given up, unless nothing came now because nothing was sent."""
        self._latest = result
        if self._last is None or result.was_sent:
            await self.drop()
            self._last = result
        wait_s = result.repeat_after_s
        if wait_s is not None:
            self.again[result.pool.upstream] = wait_s
        return result.is_final


async def _drop(result: _Result) -> None:
    if result.response is not None:
        await result.response.body.aclose()


def _is_retried(response: UpstreamResponse) -> bool:
    if response.status not in _RETRIED and response.status < 500:
        return False
    return _header(response, b"x-should-retry") != b"false"


def _without_retry(response: UpstreamResponse) -> UpstreamResponse:
    """Said in the header that OpenAI's SDKs ask first."""
    kept = tuple(pair for pair in response.headers if pair[0] != b"x-should-retry")
    response.headers = (*kept, (b"x-should-retry", b"false"))
    return response


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


def _log(attempts: Sequence[Attempt]) -> None:
    for one in attempts[:-1]:
        log.info("another try after %s %s: %s", one.upstream, one.server, one.reason)
