"""HTTP/1 on a connection: uvicorn's protocol with bounds on what it holds for a request's head, and
on how long it waits for the rest of a request."""

import asyncio
import enum
import re
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from proxy.call import Headers
from proxy.errors import error_body
from proxy.outcome import REFUSED, headers_of
from proxy.processes.corked import Corked
from proxy.request.requestid import request_id
from proxy.request.target import is_cached
from proxy.settings.units import Duration

_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client may take; `limits` in the config."""

    head_s: float
    """For the whole head."""
    body_s: float
    """Between two pieces of a body."""


class _Awaited(enum.Enum):
    """What the client has to send next."""

    REQUEST = enum.auto()
    """The first byte of one, while no keep-alive timer runs."""
    HEAD = enum.auto()
    """The rest of one that has begun."""
    BODY = enum.auto()
    NOTHING = enum.auto()
    """It waits for us, or the keep-alive timer for it."""


class BoundedProtocol(HttpToolsProtocol):
    """Refuses endless request lines, headers and trailers while they come in, and requests that
    never come to their end. What it has to answer by itself, it answers as the application would.

    The parser collects heads, however long they are; the config's limit (`proxy.port.receiving`)
    can count only what is complete. The bound is uvicorn's setting
    `h11_max_incomplete_event_size`, which this parser otherwise leaves unused.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        assert self.config.h11_max_incomplete_event_size is not None
        self._max_held_bytes = self.config.h11_max_incomplete_event_size
        self._held_bytes = 0
        """Came in since the last request began or the last piece of a body was passed on."""
        self._awaited = _Awaited.REQUEST
        self._seen_waiting_at: float | None = None
        """When `sweep` first found it waiting for this. Requests pay for no clock and no timer."""

    # uvicorn asks for a whole `asyncio.Transport`; it uses what `Corked` has or passes on.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # see above
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]  # see above

    def data_received(self, data: bytes) -> None:
        self._held_bytes += len(data)
        if self._awaited is not _Awaited.BODY and (b"pgrade:" in data or b"PGRADE:" in data):
            data = _without_upgrade(data)
        super().data_received(data)
        if self._held_bytes > self._max_held_bytes and not self.transport.is_closing():
            self._refuse(431, "The headers exceed the limit.")

    def on_message_begin(self) -> None:
        self._held_bytes = 0
        self._awaited = _Awaited.HEAD
        self._seen_waiting_at = None
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._held_bytes = 0
        super().on_headers_complete()
        self._awaited = _Awaited.BODY
        self._seen_waiting_at = None

    def on_body(self, body: bytes) -> None:
        self._held_bytes = 0
        self._seen_waiting_at = None
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._held_bytes = 0
        self._awaited = _Awaited.NOTHING
        super().on_message_complete()

    def sweep(self, now_s: float, patience: Patience) -> None:
        """Give up a request whose rest is overdue: 408. To be called now and then; from one call to
        the next is how exactly times are kept. `now_s` is of any clock that never goes back."""
        if self._awaited is _Awaited.NOTHING and self._is_idle_without_timer():
            self._awaited = _Awaited.REQUEST
            self._seen_waiting_at = None
        if self._awaited is _Awaited.NOTHING or self.transport.is_closing():
            return
        if self._seen_waiting_at is None or self._waits_for_us():
            self._seen_waiting_at = now_s
            return
        of_body = self._awaited is _Awaited.BODY
        limit_s = patience.body_s if of_body else patience.head_s
        if now_s - self._seen_waiting_at < limit_s:
            return
        if self._awaited is _Awaited.REQUEST:
            self.transport.close()
        elif of_body:
            self._refuse(408, f"No more of the body came within {Duration(limit_s)}.")
        else:
            self._refuse(408, f"The headers did not come within {Duration(limit_s)}.")

    def send_400_response(self, msg: str) -> None:
        """Called for what is no HTTP."""
        self._refuse(400, msg)

    def _is_idle_without_timer(self) -> bool:
        # Whatever comes in stops the keep-alive timer, and be it an empty line.
        return self.cycle.response_complete and self.timeout_keep_alive_task is None

    def _waits_for_us(self) -> bool:
        """The client cannot send, or what it sends cannot be answered before something else is."""
        cycle = self.cycle
        if self._awaited is _Awaited.BODY:
            return self.flow.read_paused or cycle.waiting_for_100_continue
        return cycle is not None and not cycle.response_complete

    def _refuse(self, status: int, message: str) -> None:
        """Answer, where it can only be taken for the answer to this request, and hang up."""
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        if self._awaited is _Awaited.BODY:
            answerable = not (cycle.response_started or self.pipeline)
        else:
            answerable = idle
        if answerable:
            self.transport.write(self._answer(status, message))
        if answerable or idle:
            self.transport.close()
        else:
            self.transport.abort()

    def _answer(self, status: int, message: str) -> bytes:
        code = "request_timeout" if status == 408 else None
        body = error_body(message, kind="invalid_request_error", code=code)
        headers: Headers = (
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            (b"x-request-id", request_id(tuple(self.headers or ())).encode()),
            *(headers_of(REFUSED) if self.scope and is_cached(self.url) else ()),
        )
        lines = [b"%b: %b\r\n" % header for header in headers]
        return b"".join([STATUS_LINE[status], *lines, b"\r\n", body])


def _without_upgrade(data: bytes) -> bytes:
    """Of the head that begins in `data`: another protocol is offered, which may be ignored (RFC
    9110, section 7.8; Java's client offers h2c with each request). The parser would take what
    follows the head, the body, for that protocol."""
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"", head) + end + rest
