"""The HTTP client below `RemoteUpstream`: httpx's transport interface over aiohttp's connections.

The transport is used without `httpx.AsyncClient`, which costs more than 100 us a request and would
keep cookies, log URLs and follow redirects unless told otherwise. Only this file knows aiohttp.
"""

import base64
import contextvars
import socket
import ssl
import urllib.request
from collections.abc import Callable

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from proxy.errors import (
    UpstreamBroken,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.settings.upstreams import Upstream

FAULTS = (httpx.TransportError, aiohttp.ClientError, OSError)
"""What sending and reading raise when the connection or the server is at fault."""

_KEEP_ALIVE_S = 30.0
_MAX_HEADER_BYTES = 64 * 2**10
_NO_DEFAULTS = ("User-Agent", "Content-Type", "Accept")
"""Headers that aiohttp would add on its own."""


class Dial:
    """Whether a request got a new connection or one that was used before."""

    __slots__ = ("fresh",)

    def __init__(self) -> None:
        self.fresh = False


DIAL: contextvars.ContextVar[Dial | None] = contextvars.ContextVar("dial", default=None)
"""Set by who sends, marked by the connector when it opens a socket for that request."""


def make_transport(base_url: str, *, context: ssl.SSLContext) -> httpx.AsyncBaseTransport:
    """The connections to one server. Proxies are taken from the environment (`HTTPS_PROXY`,
    `NO_PROXY`), credentials are not (`.netrc`)."""
    return AiohttpTransport(
        verify=context, proxy=_proxy_for(httpx.URL(base_url)), client=_session_of(context)
    )


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
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError) else error
    kind = type(cause).__name__
    match cause:
        case aiohttp.ConnectionTimeoutError() | httpx.ConnectTimeout():
            text = f"upstream {upstream}: no connection in time"
            return UpstreamTimeout(text, upstream=upstream, phase="connect")
        case aiohttp.ClientConnectorError() | aiohttp.ClientHttpProxyError():
            reason = _reason(cause)
        case aiohttp.InvalidURL() | httpx.ConnectError() | httpx.ProxyError():
            reason = kind
        case httpx.UnsupportedProtocol() | aiohttp.NonHttpUrlClientError():
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


def _session_of(context: ssl.SSLContext) -> Callable[[], aiohttp.ClientSession]:
    """Called once, within the event loop, by the first request."""

    def session() -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,  # `max_in_flight` is the limit, and its queue is the one to wait in
            keepalive_timeout=_KEEP_ALIVE_S,
            ssl=context,
            socket_factory=_opened,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NO_DEFAULTS,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )

    return session


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


def _proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    if urllib.request.proxy_bypass(url.host):
        return None
    address = urllib.request.getproxies().get(url.scheme)
    if not address:
        return None
    proxy = httpx.URL(address)
    if not proxy.userinfo:
        return httpx.Proxy(proxy)
    # As a header, because the transport's own way is a deprecated one of aiohttp's.
    credential = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    return httpx.Proxy(
        proxy.copy_with(username=None, password=None),
        headers={"proxy-authorization": f"Basic {credential}"},
    )
