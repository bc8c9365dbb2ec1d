"""One attempt: a place at an upstream, a server of it, and an answer that is known to be good."""

from collections.abc import Callable

import msgspec

from proxy.errors import (
    UpstreamBroken,
    UpstreamBusy,
    UpstreamError,
    UpstreamRestarting,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.observing.timing import Leg
from proxy.observing.traceparent import told
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse
from proxy.upstreams.body import Buffered, Held
from proxy.upstreams.opening import settled
from proxy.upstreams.pool import Member, Pool

CANCELLED = "cancelled"

Count = Callable[[str, str], None]
"""Told of each attempt: the upstream's name and a word of few."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One try, or one that was not made for want of a place or a healthy server."""

    upstream: str
    server: str
    """Empty where none was asked."""
    status: int | None
    """None: there was no response."""
    reason: str
    """What came, without secrets."""


class Journal:
    """What one request has been through so far."""

    def __init__(self, count: Count) -> None:
        self.attempts: list[Attempt] = []
        self.tried: list[Member] = []
        self._count = count

    def answered(self, pool: Pool, member: Member, status: int) -> None:
        """A response came, whatever it says."""
        self._note(pool, member.name, status, f"status {status}", _word(status))

    def failed(self, pool: Pool, server: str, error: UpstreamError) -> None:
        """None came."""
        self._note(pool, server, None, str(error), _word_of(error))

    def cancelled(self, pool: Pool) -> None:
        """Nobody waits for it any more; that says nothing of the server."""
        self._count(pool.upstream, CANCELLED)

    def _note(self, pool: Pool, server: str, status: int | None, reason: str, word: str) -> None:
        self.attempts.append(
            Attempt(upstream=pool.upstream, server=server, status=status, reason=reason)
        )
        self._count(pool.upstream, word)


async def attempt(
    pool: Pool, request: UpstreamRequest, journal: Journal, *, settle: bool = True
) -> UpstreamResponse:
    """Ask the first server that takes the connection. The place is kept until the body has ended.

    With `settle` the answer is returned once it is known to be good (`proxy.upstreams.opening`).
    Raises `UpstreamError`, of which `UpstreamBusy` and `UpstreamUnreachable` mean that nothing was
    sent.
    """
    try:
        await pool.admission.enter()
    except UpstreamBusy as error:
        journal.failed(pool, "", error)
        raise
    try:
        return await _first_that_connects(pool, request, journal, settle=settle)
    except BaseException:
        pool.admission.leave()
        raise


async def _first_that_connects(
    pool: Pool, request: UpstreamRequest, journal: Journal, *, settle: bool
) -> UpstreamResponse:
    unreached: UpstreamError | None = None
    for member in pool.order(request, tried=journal.tried):
        if not member.breaker.allow():
            continue
        journal.tried.append(member)
        try:
            return await _exchange(pool, member, request, journal, settle=settle)
        except UpstreamError as error:
            if not _is_unreached(error):
                raise
            unreached = error
    if unreached is None:
        text = f"upstream {pool.upstream}: left alone for a while, most requests to it failed"
        unreached = UpstreamUnreachable(text, upstream=pool.upstream)
        journal.failed(pool, "", unreached)
    raise unreached


async def _exchange(
    pool: Pool, member: Member, request: UpstreamRequest, journal: Journal, *, settle: bool
) -> UpstreamResponse:
    member.in_flight += 1
    timing = request.timing
    leg = timing.leg(pool.upstream, member.name, path=request.path)
    try:
        response = await member.server.send(_within(leg, request))
        if settle:
            response = await settled(response)
    except UpstreamError as error:
        member.in_flight -= 1
        if not isinstance(error, UpstreamRestarting):
            # One death is one, however many requests it met; who comes next waits for the restart.
            member.breaker.failed(unreached=_is_unreached(error))
        journal.failed(pool, member.name, error)
        timing.answered(leg, _word_of(error), status=None)
        raise
    except BaseException:
        member.in_flight -= 1
        journal.cancelled(pool)
        timing.answered(leg, CANCELLED, status=None)
        raise
    journal.answered(pool, member, response.status)
    timing.answered(leg, _word(response.status), status=response.status)
    if response.status >= 500:
        member.breaker.failed()
    elif response.status != 429:  # busy is not broken
        member.breaker.succeeded()

    def leave() -> None:
        pool.leave(member)
        timing.ended(leg)

    _leave_at_end(response, leave)
    return response


def _within(leg: Leg, request: UpstreamRequest) -> UpstreamRequest:
    """The request as part of the leg's span, where there is one."""
    trace = request.timing.trace
    if trace is None:
        return request
    headers = told(request.headers, trace, span_id=leg.span_id)
    return msgspec.structs.replace(request, headers=headers)


def _leave_at_end(response: UpstreamResponse, leave: Callable[[], None]) -> None:
    body = response.body
    if isinstance(body, Buffered):
        leave()
        return
    if not isinstance(body, Held):
        body = response.body = Held((), body)
    body.on_end = leave


def _is_unreached(error: UpstreamError) -> bool:
    """No connection stood, so another server can be asked at once."""
    if isinstance(error, UpstreamTimeout):
        return error.phase == "connect"
    return isinstance(error, UpstreamUnreachable)


def _word(status: int) -> str:
    if status == 429:
        return "rate_limited"
    if status >= 500:
        return "server_error"
    return "client_error" if status >= 400 else "answered"


def _word_of(error: UpstreamError) -> str:
    match error:
        case UpstreamBusy():
            return "busy"
        case UpstreamUnreachable():
            return "unreachable"
        case UpstreamTimeout():
            return f"timeout_{error.phase}"
        case UpstreamBroken():
            return "broken"
        case _:
            return "failed"
