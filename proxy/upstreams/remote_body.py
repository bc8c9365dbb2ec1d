"""The body of a remote server's answer, on its connection."""

import asyncio
import logging
from collections.abc import AsyncGenerator

import httpx

from proxy.errors import UpstreamError
from proxy.upstreams.body import Body
from proxy.upstreams.transport import FAULTS, fault
from proxy.upstreams.watchdog import Watchdog

log = logging.getLogger("rejoinder.upstream")

_LINGER_S = 0.1
"""After the terminal event: how long the server may take to end its body, so that the connection
can be used again."""


class RemoteBody(Body):
    """The body of a response, on its connection."""

    def __init__(self, response: httpx.Response, watchdog: Watchdog, *, upstream: str) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self._stream = response.stream
        is_coded = "content-encoding" in response.headers
        self._chunks = response.aiter_bytes() if is_coded else response.stream.__aiter__()
        self._watchdog = watchdog
        self._upstream = upstream
        self._last = b""
        self._began = False
        self._closed = False
        self._reading = False

    async def __anext__(self) -> bytes:
        if self._closed:
            raise StopAsyncIteration
        try:
            self._reading = True
            chunk = await self._watchdog.wait(self._chunks.__anext__())
            self._reading = False
        except StopAsyncIteration:
            await self._release()
            raise
        except (*FAULTS, httpx.DecodingError) as error:
            await self._release()
            raise fault(error, upstream=self._upstream, began=self._began) from None
        except (UpstreamError, asyncio.CancelledError):
            await self._release()
            raise
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

    async def _release(self) -> None:
        self._closed = True
        self._watchdog.close()
        try:
            if isinstance(self._chunks, AsyncGenerator) and not self._reading:
                await self._chunks.aclose()
            await self._stream.aclose()
        except FAULTS:
            log.debug("upstream %s: closing a connection failed", self._upstream)
