"""An OpenAI-compatible server over HTTP."""

import asyncio
import logging
import urllib.parse
from collections.abc import AsyncGenerator, AsyncIterator

import httpx

from proxy.errors import ClientError, UpstreamBroken, UpstreamError, UpstreamUnreachable
from proxy.settings import config as written
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse
from proxy.upstreams.body import Body, Buffered
from proxy.upstreams.stream_usage import ASKED_PATHS, refuses_usage, with_usage, without_usage
from proxy.upstreams.transport import DIAL, FAULTS, Dial, fault
from proxy.upstreams.watchdog import Watchdog

log = logging.getLogger("rejoinder.upstream")

_HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"proxy-connection",
})  # fmt: skip
_DECODED = frozenset({b"gzip", b"deflate", b"x-gzip"})
_MAX_STALE = 3
"""Idle connections that one request may find closed by the server, one after the other."""
_REFUSAL_STATUSES = (400, 422)
_LINGER_S = 0.1
"""After the terminal event: how long the server may take to end its body, so that the connection
can be used again."""


class RemoteUpstream:
    """One server, or what its base URL balances over. Owns `transport` (`make_transport`).

    Whether the server takes `stream_options.include_usage` is learned here, since here is where one
    server's answers come together: it is asked for, and after one refusal no more.
    """

    def __init__(
        self, name: str, config: written.Upstream, *, transport: httpx.AsyncBaseTransport
    ) -> None:
        assert config.base_url is not None
        self.name = name
        self._config = config
        self._transport = transport
        self._base = config.base_url.rstrip("/")
        self._query = urllib.parse.urlencode(config.query).encode()
        self._urls = {path: self._url(path, b"") for path in _USUAL_PATHS}
        self._headers = tuple(
            (key.lower().encode(), value.encode()) for key, value in config.headers.items()
        )
        self._extensions = {"timeout": {"connect": float(config.timeout.connect)}}
        self._asks_usage = config.stream_usage
        self._trouble = ""

    @property
    def identity(self) -> str:
        """Its name: what the server at a URL is, only the config knows."""
        return self.name

    @property
    def models(self) -> tuple[str, ...]:
        """Unknown; it would have to be asked."""
        return ()

    async def start(self) -> None:
        """Nothing to load: connections are made when they are needed."""

    async def state(self) -> str:
        """`ready`, or why the last request found no connection."""
        return self._trouble or "ready"

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """As `Upstream.send`. A server that refuses to be asked for usage is asked without."""
        if not (request.stream and request.path in ASKED_PATHS and isinstance(request.body, bytes)):
            return await self._exchange(request, request.body)
        if not self._asks_usage:
            return await self._exchange(request, without_usage(request.body))
        response = await self._exchange(request, with_usage(request.body))
        if response.status not in _REFUSAL_STATUSES:
            return response
        text = await _whole(response.body)
        if not refuses_usage(text):
            response.body = Buffered(text)
            return response
        log.info(
            "upstream %s refuses stream_options; it is not asked for usage any more", self.name
        )
        self._asks_usage = False
        return await self._exchange(request, without_usage(request.body))

    async def _exchange(
        self, request: UpstreamRequest, body: bytes | AsyncIterator[bytes]
    ) -> UpstreamResponse:
        """One request. When an idle connection turns out to be closed, the next one is taken."""
        for _ in range(_MAX_STALE):
            dial = Dial()
            DIAL.set(dial)
            try:
                return await self._try(request, body)
            except UpstreamBroken as error:
                is_stale = error.before_first_byte and not dial.fresh and isinstance(body, bytes)
                if not is_stale:
                    raise
        return await self._try(request, body)

    async def _try(
        self, request: UpstreamRequest, body: bytes | AsyncIterator[bytes]
    ) -> UpstreamResponse:
        usual = None if request.query else self._urls.get(request.path)
        outgoing = httpx.Request(
            request.method,
            usual or self._url(request.path, request.query),
            headers=self._headers_for(request),
            content=body,
            extensions=self._extensions,
        )
        watchdog = Watchdog(self._config.timeout, upstream=self.name)
        try:
            incoming = await watchdog.wait(self._transport.handle_async_request(outgoing))
        except FAULTS as error:
            watchdog.close()
            found = fault(error, upstream=self.name, began=False)
            self._trouble = str(found) if isinstance(found, UpstreamUnreachable) else ""
            raise found from None
        except BaseException:
            watchdog.close()
            raise
        self._trouble = ""
        received = _RemoteBody(incoming, watchdog, upstream=self.name)
        coding = incoming.headers.get("content-encoding", "identity").lower().encode()
        if coding != b"identity" and coding not in _DECODED:
            await received.aclose()
            text = f"upstream {self.name}: its answer has an encoding that was not asked for"
            raise UpstreamBroken(text, upstream=self.name)
        return UpstreamResponse(
            upstream=self.name,
            status=incoming.status_code,
            headers=_passed(incoming.headers.raw, is_decoded=coding != b"identity"),
            body=received,
        )

    def _headers_for(self, request: UpstreamRequest) -> list[tuple[bytes, bytes]]:
        headers = list(request.headers)
        if self._headers:
            ours = {name for name, _ in self._headers}
            headers = [header for header in headers if header[0] not in ours]
            headers += self._headers
        if not any(name == b"accept-encoding" for name, _ in headers):
            headers.append((b"accept-encoding", b"identity"))
        credential = request.credential
        if self._config.credential == "own":
            credential = b"Bearer " + self._config.api_key.encode()
        if credential and self._config.auth == "api-key":
            headers.append((b"api-key", credential.removeprefix(b"Bearer ")))
        elif credential:
            headers.append((b"authorization", credential))
        return headers

    def _url(self, path: str, query: bytes) -> httpx.URL:
        """The client's query, but for the names that the config sets."""
        asked = [
            pair
            for pair in query.split(b"&")
            if pair
            and urllib.parse.unquote_plus(pair.partition(b"=")[0].decode("latin-1"))
            not in self._config.query
        ]
        whole = b"&".join((*asked, self._query) if self._query else asked)
        try:
            return httpx.URL(self._base + path, query=whole or None)
        except httpx.InvalidURL:
            raise ClientError(400, "The path or the query of the request is not valid.") from None


_USUAL_PATHS = ("/chat/completions", "/completions", "/embeddings", "/responses")


class _RemoteBody(Body):
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


async def _whole(body: Body | AsyncIterator[bytes]) -> bytes:
    pieces = [piece async for piece in body]
    return b"".join(pieces)


def _passed(raw: list[tuple[bytes, bytes]], *, is_decoded: bool) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of the response without those of this hop."""
    dropped = set(_HOP_BY_HOP)
    if is_decoded:
        dropped |= {b"content-encoding", b"content-length"}
    headers = [(name.lower(), value) for name, value in raw]
    for name, value in headers:
        if name == b"connection":
            dropped |= {token.strip().lower() for token in value.split(b",")}
    return tuple(header for header in headers if header[0] not in dropped)
