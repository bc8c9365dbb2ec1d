"""An OpenAI-compatible server over HTTP."""

import logging
import urllib.parse
from collections.abc import AsyncIterator

import httpx

from proxy.errors import UpstreamBroken, UpstreamUnreachable, error_body
from proxy.settings.upstreams import Upstream
from proxy.upstreams.base import UpstreamRequest, UpstreamResponse
from proxy.upstreams.body import Buffered
from proxy.upstreams.decoding import CODINGS, IDENTITY
from proxy.upstreams.refusal import readable
from proxy.upstreams.remote_body import RemoteBody
from proxy.upstreams.stream_usage import ASKED_PATHS, refuses_usage, with_usage, without_usage
from proxy.upstreams.transport import DIAL, FAULTS, Dial, Transport, fault
from proxy.upstreams.upload import Upload
from proxy.upstreams.watchdog import Watchdog

log = logging.getLogger("rejoinder.upstream")

_HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"proxy-connection",
})  # fmt: skip
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_REFUSAL_STATUSES = (400, 422)


class RemoteServer:
    """The server at one base URL, or what stands in front of several. Owns `transport`.

    Whether the server takes `stream_options.include_usage` is learned here, since here is where one
    server's answers come together: it is asked for, and after one refusal no more.
    """

    def __init__(
        self,
        base_url: str,
        *,
        upstream: str,
        config: Upstream,
        transport: Transport,
    ) -> None:
        """`upstream`: name of the one that it belongs to, which is what clients are told."""
        self.name = base_url.partition("://")[2].rstrip("/")
        self._upstream = upstream
        self._config = config
        self._transport = transport
        self._base = base_url.rstrip("/")
        self._query = urllib.parse.urlencode(config.query).encode()
        self._urls = {path: self._url(path, b"") for path in _USUAL_PATHS}
        self._headers = tuple(
            (key.lower().encode(), value.encode()) for key, value in config.headers.items()
        )
        self._secrets = _secrets_of(config)
        self._asks_usage = config.stream_usage
        self._trouble = ""
        self._reuses = True

    @property
    def state(self) -> str:
        """`ready`, or why the last request found no connection."""
        return self._trouble or "ready"

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """As `Server.send`. A server that refuses to be asked for usage is asked without."""
        response = await self._asked_for_usage(request)
        if response.status < 400:
            return response
        credential = self._credential(request)
        key = (credential or b"").rpartition(b" ")[2]
        secrets = (key, *self._secrets)
        return await readable(response, secrets=secrets, is_head=request.method == "HEAD")

    async def _asked_for_usage(self, request: UpstreamRequest) -> UpstreamResponse:
        if not (request.stream and request.path in ASKED_PATHS and isinstance(request.body, bytes)):
            return await self._exchange(request, request.body)
        if not self._asks_usage:
            return await self._exchange(request, without_usage(request.body))
        response = await self._exchange(request, with_usage(request.body))
        if response.status not in _REFUSAL_STATUSES:
            return response
        text = b"".join([piece async for piece in response.body])
        if not refuses_usage(text):
            response.body = Buffered(text)
            return response
        log.info("%s refuses stream_options; it is not asked for usage any more", self.name)
        self._asks_usage = False
        return await self._exchange(request, without_usage(request.body))

    async def _exchange(
        self, request: UpstreamRequest, body: bytes | AsyncIterator[bytes]
    ) -> UpstreamResponse:
        """One request. When an idle connection turns out to be closed, a new one is opened."""
        dial = Dial(reuses=self._reuses)
        try:
            return await self._on(dial, request, body)
        except UpstreamBroken:
            is_stale = dial.hung_up and not dial.fresh and isinstance(body, bytes)
            if not is_stale:
                raise
        return await self._on(Dial(reuses=False), request, body)

    async def _on(
        self, dial: Dial, request: UpstreamRequest, body: bytes | AsyncIterator[bytes]
    ) -> UpstreamResponse:
        """A server that hangs up on new connections, too, is not asked on used ones until it
        answers: each would only be one more that gets the request."""
        DIAL.set(dial)
        try:
            response = await self._try(request, body)
        finally:
            if dial.fresh:
                self._reuses = not dial.hung_up
        return response

    async def _try(
        self, request: UpstreamRequest, body: bytes | AsyncIterator[bytes]
    ) -> UpstreamResponse:
        usual = None if request.query else self._urls.get(request.path)
        try:
            url = usual or self._url(request.path, request.query)
        except httpx.InvalidURL:
            return _refusal(self._upstream)
        headers = self._headers_for(request)
        watchdog = Watchdog(self._config.timeout, upstream=self._upstream)
        sent = body if isinstance(body, bytes) else Upload(body)
        try:
            incoming = await watchdog.wait(
                self._transport.send(request.method, url, headers=headers, body=sent)
            )
        except FAULTS as error:
            watchdog.close()
            if isinstance(sent, Upload) and sent.fault is not None:
                raise sent.fault from None
            found = fault(error, upstream=self._upstream, began=False)
            self._trouble = str(found) if isinstance(found, UpstreamUnreachable) else ""
            raise found from None
        except BaseException:
            watchdog.close()
            raise
        self._trouble = ""
        coding = _coding_of(incoming.headers)
        received = RemoteBody(incoming, watchdog, coding=coding, upstream=self._upstream)
        if not 200 <= incoming.status <= 599:
            await received.aclose()
            text = f"upstream {self._upstream}: answers with a status that HTTP does not know"
            raise UpstreamBroken(text, upstream=self._upstream)
        if coding != IDENTITY and coding not in CODINGS:
            await received.aclose()
            text = f"upstream {self._upstream}: its answer has an encoding that was not asked for"
            raise UpstreamBroken(text, upstream=self._upstream)
        return UpstreamResponse(
            upstream=self._upstream,
            status=incoming.status,
            headers=_passed(incoming.headers, is_decoded=coding != IDENTITY),
            body=received,
            delimited=coding == IDENTITY and any(n in _FRAMING for n, _ in incoming.headers),
            is_personal=self._config.credential == "passthrough" and bool(request.credential),
        )

    def _headers_for(self, request: UpstreamRequest) -> list[tuple[bytes, bytes]]:
        headers = list(request.headers)
        if self._headers:
            ours = {name for name, _ in self._headers}
            headers = [header for header in headers if header[0] not in ours]
            headers += self._headers
        if not any(name == b"accept-encoding" for name, _ in headers):
            headers.append((b"accept-encoding", b"identity"))
        credential = self._credential(request)
        if credential and self._config.auth == "api-key":
            headers.append((b"api-key", credential.removeprefix(b"Bearer ")))
        elif credential:
            headers.append((b"authorization", credential))
        return headers

    def _credential(self, request: UpstreamRequest) -> bytes | None:
        """The `Authorization` value that goes with a request."""
        if self._config.credential == "own":
            return b"Bearer " + self._config.api_key.encode()
        return request.credential

    def _url(self, path: str, query: bytes) -> str:
        """The client's query, but for the names that the config sets. Raises httpx.InvalidURL."""
        asked = [
            pair
            for pair in query.split(b"&")
            if pair
            and urllib.parse.unquote_plus(pair.partition(b"=")[0].decode("latin-1"))
            not in self._config.query
        ]
        whole = b"&".join((*asked, self._query) if self._query else asked)
        return str(httpx.URL(self._base + path, query=whole or None))


_USUAL_PATHS = ("/chat/completions", "/completions", "/embeddings", "/responses")


def _secrets_of(config: Upstream) -> tuple[bytes, ...]:
    """What goes along with each request beside the credential, as it is written and in a URL."""
    values = (*config.headers.values(), *config.query.values())
    quoted = map(urllib.parse.quote_plus, config.query.values())
    return tuple({value.encode() for value in (*values, *quoted)})


def _refusal(upstream: str) -> UpstreamResponse:
    """An answer that the server need not be asked for."""
    text = "The path or the query of the request is not valid."
    return UpstreamResponse(
        upstream=upstream,
        status=400,
        headers=((b"content-type", b"application/json"),),
        body=Buffered(error_body(text, kind="invalid_request_error")),
    )


def _coding_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    codings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    return b", ".join(codings) or IDENTITY


def _passed(
    headers: list[tuple[bytes, bytes]], *, is_decoded: bool
) -> tuple[tuple[bytes, bytes], ...]:
    """Headers of the response without those of this hop."""
    dropped = set(_HOP_BY_HOP)
    if is_decoded:
        dropped |= {b"content-encoding", b"content-length"}
    for name, value in headers:
        if name == b"connection":
            dropped |= {token.strip().lower() for token in value.split(b",")}
    return tuple(header for header in headers if header[0] not in dropped)
