"""A transport that writes the pieces of one moment together."""

import asyncio
from typing import Any

_MAX_HELD_BYTES = 64 * 2**10
"""More is written at once, so that the transport beneath can say when it has too much."""

_HEAD = b"HTTP/"


class Corked:
    """Head and body of an answer come in two writes, each a system call that also wakes the client.

    A head, and what is written after it, is held until the event loop's next turn, then written at
    once. A piece of a stream by itself is not: there is nothing to wait for, and it costs a turn.
    All else goes to the transport beneath, after what is held.
    """

    __slots__ = ("_held", "_held_bytes", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes) -> None:
        """As `asyncio.WriteTransport.write`, perhaps a moment later."""
        if not self._held:
            if not data.startswith(_HEAD):
                self._write(data)
                return
            self._loop.call_soon(self.flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > _MAX_HELD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        if self._held:
            data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0
            self._write(data)

    def close(self) -> None:
        """Close when all is written."""
        self.flush()
        self._transport.close()

    def _write(self, data: bytes) -> None:
        if not self._transport.is_closing():  # else nobody reads it any more
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
