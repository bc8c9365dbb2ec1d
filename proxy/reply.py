"""Answers to clients, and the one place where errors get OpenAI's shape."""

from collections.abc import AsyncGenerator

import msgspec

from proxy.call import Headers, Surface
from proxy.errors import (
    ClientError,
    UpstreamBusy,
    UpstreamError,
    UpstreamRedirect,
    UpstreamRestarting,
    UpstreamStopped,
    UpstreamTimeout,
    UpstreamUnreachable,
    error_body,
)
from proxy.misses.flight import Flight
from proxy.outcome import Outcome
from proxy.question import Question

JSON = (b"content-type", b"application/json")
STREAM: Headers = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_COME_BACK: Headers = ((b"retry-after", b"1"), (b"x-should-retry", b"true"))


class Reply(msgspec.Struct, kw_only=True):
    """What goes to the client. Not frozen: a stream is consumed by sending it.

    A streamed body raises UpstreamError where it breaks off; it then must not end cleanly.
    """

    status: int
    headers: Headers
    body: bytes | AsyncGenerator[bytes, None]


class Answer(msgspec.Struct, kw_only=True):
    """A reply and what became of its request."""

    reply: Reply
    outcome: Outcome
    question: Question | None = None
    """None where the request was refused before it was decided."""
    flight: Flight | None = None
    """That brought it; None where it came from the cache. Of embeddings: what nobody else was
    asking for."""


def of_client_error(error: ClientError) -> Reply:
    """A request that is wrong."""
    body = error_body(error.message, kind=error.kind, param=error.param, code=error.code)
    headers: Headers = (JSON,)
    if error.retry is not None:
        headers = (JSON, (b"x-should-retry", b"true" if error.retry else b"false"))
    if error.allow:
        headers = (*headers, (b"allow", ", ".join(error.allow).encode()))
    return Reply(status=error.status, headers=(*headers, *error.headers), body=body)


def of_upstream_error(error: UpstreamError) -> Reply:
    """No answer to be had. Our own tries are spent, so SDKs are told not to try again; where
    nothing was sent for want of a place, or the engine comes back by itself, to come back."""
    status, code = _status_of(error)
    if isinstance(error, UpstreamBusy):
        body = error_body(str(error), kind="rate_limit_error", code=code)
        return Reply(status=status, headers=(JSON, *_COME_BACK), body=body)
    body = error_body(str(error), kind="upstream_error", code=code)
    if isinstance(error, UpstreamRestarting):
        return Reply(status=status, headers=(JSON, *_COME_BACK), body=body)
    again = b"true" if isinstance(error, UpstreamStopped) else b"false"
    return Reply(status=status, headers=(JSON, (b"x-should-retry", again)), body=body)


def of_fault(request_id: str) -> Reply:
    """A bug of ours: the log has the rest under the request's id."""
    text = f"Internal error of the proxy; its log says more under request id {request_id}."
    return Reply(status=500, headers=(JSON,), body=error_body(text, kind="server_error"))


def error_event(error: UpstreamError, *, surface: Surface, sequence_number: int) -> bytes:
    """The event that ends a stream which broke off after its headers had been sent.

    On the Responses API it is an `error` event, numbered like the others; `error` stands in it too,
    since that is what OpenAI's SDKs look for before they raise.
    """
    _, code = _status_of(error)
    body = error_body(str(error), kind="upstream_error", code=code)
    if surface is not Surface.RESPONSES:
        return b"data: %b\n\n" % body
    event = {
        "type": "error",
        "code": code,
        "message": str(error),
        "param": None,
        "sequence_number": sequence_number,
    }
    return b"event: error\ndata: %b,%b\n\n" % (msgspec.json.encode(event)[:-1], body[1:])


def _status_of(error: UpstreamError) -> tuple[int, str]:
    if isinstance(error, UpstreamTimeout):
        return 504, "upstream_timeout"
    if isinstance(error, UpstreamBusy):
        return 429, "upstream_busy"
    if isinstance(error, UpstreamStopped):
        return 503, "shutting_down"
    if isinstance(error, UpstreamRestarting):
        return 503, "engine_restarting"
    if isinstance(error, UpstreamUnreachable):
        return 503, "upstream_unreachable"
    if isinstance(error, UpstreamRedirect):
        return 502, "upstream_redirect"
    return 502, "upstream_broken"
