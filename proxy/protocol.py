"""HTTP/1 on a connection: uvicorn's protocol with a bound on what it holds for a request's head."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.corked import Corked
from proxy.errors import error_body

_REFUSED = error_body("The headers exceed the limit.", kind="invalid_request_error")
_ANSWER = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_REFUSED), _REFUSED)
)


class BoundedProtocol(HttpToolsProtocol):
    """Refuses endless request lines, headers and trailers while they come in.

    The parser collects them, however long they are; the limit of the config
    (`proxy.receiving`) can count only what is complete. The bound is uvicorn's setting
    `h11_max_incomplete_event_size`, which this parser otherwise leaves unused.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        assert self.config.h11_max_incomplete_event_size is not None
        self._max_held_bytes = self.config.h11_max_incomplete_event_size
        self._held_bytes = 0
        """Came in since the last request began or the last piece of a body was passed on."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Corked(transport, self.loop))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self._held_bytes += len(data)
        super().data_received(data)
        if self._held_bytes > self._max_held_bytes and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        self._held_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._held_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._held_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._held_bytes = 0
        super().on_message_complete()

    def _refuse(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_ANSWER)
            self.transport.close()
        else:
            self.transport.abort()
