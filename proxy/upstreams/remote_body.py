"""The body of a remote server's answer, on its connection."""

import asyncio
import zlib
from collections.abc import Iterator

from proxy.errors import UpstreamError
from proxy.upstreams.body import Body
from proxy.upstreams.decoding import CODINGS, Decoder
from proxy.upstreams.transport import FAULTS, Incoming, fault
from proxy.upstreams.watchdog import Watchdog

_LINGER_S = 0.1
"""After the terminal event: how long the server may take to end its body, so that the connection
can be used again."""


class RemoteBody(Body):
    """The body of a response, on its connection."""

    def __init__(
        self, incoming: Incoming, watchdog: Watchdog, *, coding: bytes, upstream: str
    ) -> None:
        self._incoming = incoming
        self._decoder = Decoder(coding) if coding in CODINGS else None
        self._pieces: Iterator[bytes] = iter(())
        """Of what was read last, decoded."""
        self._watchdog = watchdog
        self._upstream = upstream
        self._last = b""
        self._began = False
        self._closed = False

    async def __anext__(self) -> bytes:
        if self._closed:
            raise StopAsyncIteration
        try:
            if self._decoder is None:
                chunk = await self._watchdog.wait(self._incoming.read())
            else:
                chunk = await self._decoded(self._decoder)
        except (*FAULTS, zlib.error) as error:
            await self._release()
            raise fault(error, upstream=self._upstream, began=self._began) from None
        except (UpstreamError, asyncio.CancelledError):
            await self._release()
            raise
        if not chunk:
            await self._release()
            raise StopAsyncIteration
        if not self._began:
            self._began = True
            self._watchdog.began()
        self._last = chunk
        return chunk

    async def aclose(self) -> None:
        """Closes the connection at once, unless the stream has just told its end."""
        if self._closed:
            return
        if b"data: [DONE]" in self._last or b"event: response.completed" in self._last:
            await self._linger()
        await self._release()

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(_LINGER_S):
                await self.__anext__()
        except (StopAsyncIteration, UpstreamError, TimeoutError):
            return

    async def _decoded(self, decoder: Decoder) -> bytes:
        """Empty at the end."""
        while not (piece := next(self._pieces, b"")) and not decoder.is_over:
            self._pieces = decoder.feed(await self._watchdog.wait(self._incoming.read()))
        return piece

    async def _release(self) -> None:
        self._closed = True
        self._watchdog.close()
        await self._incoming.release()
