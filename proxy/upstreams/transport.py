"""The HTTP client below `RemoteServer`: aiohttp's connections, told to keep no cookies, follow no
redirects, add no headers and decode nothing. Only this file knows it.
"""

import contextlib
import contextvars
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Iterable

import aiohttp
import httpx
import yarl
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from proxy.errors import (
    UpstreamBroken,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.settings.upstreams import Upstream
from proxy.upstreams.environment import way_to

FAULTS = (aiohttp.ClientError, OSError)
"""What sending and reading raise when the connection or the server is at fault."""

_KEEP_ALIVE_S = 30.0
_MAX_HEADER_BYTES = 64 * 2**10
_MAX_HEADERS = 1024
_NO_DEFAULTS = ("User-Agent", "Content-Type", "Accept")
"""Headers that aiohttp would add on its own."""


class Dial:
    """What connection a request wants, and what became of it."""

    __slots__ = ("fresh", "hung_up", "reuses")

    def __init__(self, *, reuses: bool) -> None:
        self.reuses = reuses
        """Whether one that was used before will do."""
        self.fresh = False
        """It got a new one."""
        self.hung_up = False
        """The server closed it without a word."""


DIAL: contextvars.ContextVar[Dial | None] = contextvars.ContextVar("dial", default=None)
"""Set by who sends, marked when a socket is opened for that request."""


class Incoming:
    """A response whose head has come. Must be released."""

    __slots__ = ("_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers = [(name.lower(), value) for name, value in response.raw_headers]
        """As the server sent them, names in lower case."""

    def read(self) -> Awaitable[bytes]:
        """What has come of the body, once something has; empty at its end. Raises FAULTS."""
        return self._response.content.readany()

    async def release(self) -> None:
        """Give the connection back where all was read, else close it."""
        with contextlib.suppress(*FAULTS):  # nobody reads it any more
            await self._response.__aexit__(None, None, None)


class Transport:
    """The connections to one server. Proxies are taken from the environment, credentials for the
    server are not (`.netrc`)."""

    def __init__(self, base_url: str, *, context: ssl.SSLContext, connect_s: float) -> None:
        """`connect_s`: how long a new connection may take. Raises ValueError where the proxy of
        the environment cannot be used."""
        self._context = context
        self._timeout = aiohttp.ClientTimeout(sock_connect=connect_s)
        self._way = way_to(httpx.URL(base_url), urllib.request.getproxies())
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes | AsyncIterator[bytes],
    ) -> Incoming:
        """The response, once its head has come. Raises FAULTS."""
        if self._session is None:
            self._session = _session_of(self._context)  # within the event loop
        try:
            response = await self._session.request(
                method,
                yarl.URL(url, encoded=True),  # quoted anew, what a client signed would not hold
                headers=[
                    *self._way.headers,
                    *((_text(name), _text(value)) for name, value in headers),
                ],
                data=body or None,
                allow_redirects=False,
                timeout=self._timeout,
                proxy=self._way.proxy,
                proxy_headers=self._way.connect_headers,
            )
        except (aiohttp.ServerDisconnectedError, ConnectionError):
            if (dial := DIAL.get()) is not None:
                dial.hung_up = True
            raise
        return Incoming(response)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()


def tls_context(config: Upstream) -> ssl.SSLContext:
    """Whom the connections of an upstream trust and who they say they are.

    The usual authorities are read only where they are used: that takes 20 ms and half a megabyte.
    Raises OSError (ssl.SSLError is one) for files that cannot be read or do not fit.
    """
    tls = config.tls
    is_used = any(base.url.startswith("https:") for base in config.bases)
    if tls.ca is not None and is_used:
        context = ssl.create_default_context(cafile=tls.ca)
    else:
        context = httpx.create_ssl_context(verify=tls.verify and is_used)
    if tls.cert is not None and is_used:
        context.load_cert_chain(tls.cert, tls.key)
    return context


def fault(error: Exception, *, upstream: str, began: bool) -> UpstreamError:
    """One of `FAULTS` as ours. `began`: something of the answer had come.

    The texts of foreign errors can hold URLs, which can hold keys; only their kind is told. Raise
    it `from None` for the same reason.
    """
    kind = type(error).__name__
    match error:
        case aiohttp.ConnectionTimeoutError():
            text = f"upstream {upstream}: no connection in time"
            return UpstreamTimeout(text, upstream=upstream, phase="connect")
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            reason = _reason(error)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            reason = kind
        case _:
            when = "in the middle of its answer" if began else "before it answered"
            text = f"upstream {upstream}: the connection broke {when} ({kind})"
            return UpstreamBroken(text, upstream=upstream, before_first_byte=not began)
    text = f"upstream {upstream}: cannot connect ({reason})"
    return UpstreamUnreachable(text, upstream=upstream)


def _reason(error: aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError) -> str:
    """What the system says of it, which holds no URL."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy says {error.status}"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    return error.os_error.strerror or type(error).__name__


class _Connector(aiohttp.TCPConnector):
    """Lends no connection on which something came while nobody had asked for anything: what did
    would be the answer to the next request, which may be another tenant's.

    `_get`, `_release` and `_parser` are aiohttp's own, hence the bound of its version; a test with
    such a server sees whether they still are what they were.
    """

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        dial = DIAL.get()
        if dial is not None and not dial.reuses:
            return None
        while (connection := await super()._get(key, traces)) is not None:
            assert connection.protocol is not None
            if not connection.protocol.should_close:
                return connection
            connection.close()
        return None

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        super()._release(key, protocol, should_close=should_close)
        protocol._parser = None  # what comes without one is kept, and `should_close` then


def _session_of(context: ssl.SSLContext) -> aiohttp.ClientSession:
    connector = _Connector(
        limit=0,  # `max_in_flight` is the limit, and its queue is the one to wait in
        keepalive_timeout=_KEEP_ALIVE_S,
        ssl=context,
        socket_factory=_opened,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_NO_DEFAULTS,
        auto_decompress=False,
        max_line_size=_MAX_HEADER_BYTES,
        max_field_size=_MAX_HEADER_BYTES,
        max_headers=_MAX_HEADERS,
    )


def _opened(address: tuple[object, ...]) -> socket.socket:
    """aiohttp's way of opening a socket, and a note of it for the request that needed it."""
    dial = DIAL.get()
    if dial is not None:
        dial.fresh = True
    family, kind, protocol = address[:3]
    assert isinstance(family, int)
    assert isinstance(kind, int)
    assert isinstance(protocol, int)
    return socket.socket(family, kind, protocol)


def _text(raw: bytes) -> str:
    """As aiohttp takes it, which sends UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")
