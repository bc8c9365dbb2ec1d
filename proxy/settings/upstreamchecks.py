"""Checks of upstreams: URLs, certificates, keys that would change nothing. Pure."""

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from proxy.settings.finding import Finding, check_header
from proxy.settings.tree import Path
from proxy.settings.upstreams import Timeout, Upstream

_OF_THE_CONNECTION = frozenset({
    "connection", "content-length", "expect", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade",
})  # fmt: skip
"""Framing and hop-by-hop headers (RFC 9110, 7.6.1; RFC 9112, 6), in lower case."""


def check_servers(
    upstream: Upstream, path: Path, *, has_path: Callable[[str], bool]
) -> Iterator[Finding]:
    """Everything of an upstream but its engine. `path` is its own."""
    for place, url in _places(upstream, (*path, "base_url")):
        yield from check_base_url(url, place)
    yield from _balance(upstream, path)
    yield from _tls(upstream, (*path, "tls"), has_path)
    for header, value in upstream.headers.items():
        yield from _header(header, value, (*path, "headers", header))
    timeout, usual = upstream.timeout, Timeout()
    for phase in ("connect", "first_byte", "idle"):
        written = getattr(timeout, phase)
        if written > timeout.total and written != getattr(usual, phase):
            message = f"longer than `total` ({timeout.total}), which ends the request before"
            yield Finding(path=(*path, "timeout", phase), message=message, warning=True)


def _header(name: str, value: str, path: Path) -> Iterator[Finding]:
    yield from check_header(name, value, path)
    if name.lower() in _OF_THE_CONNECTION:
        message = "belongs to a connection, and those are the proxy's own; leave it out"
        yield Finding(path=path, message=message)


def _places(upstream: Upstream, path: Path) -> Iterator[tuple[Path, str]]:
    """Where each base URL stands."""
    match upstream.base_url:
        case None:
            return
        case str(url):
            yield path, url
        case dict(weights):
            yield from (((*path, url), url) for url in weights)
        case urls:
            yield from (((*path, index), url) for index, url in enumerate(urls))


def check_base_url(base_url: str, path: Path) -> Iterator[Finding]:
    """It has a host, and nothing that belongs elsewhere."""
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        yield Finding(path=path, message=f"not a URL: {error}")
        return
    if not host or port == 0:
        yield Finding(path=path, message="not a URL with a host and, if any, a valid port")
    elif parts.username is not None or parts.query or parts.fragment:
        message = "no user, query or fragment in a base URL; `api_key` and `query` are for that"
        yield Finding(path=path, message=message)


def _balance(upstream: Upstream, path: Path) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, url in _places(upstream, (*path, "base_url")):
        if url.rstrip("/") in seen:
            yield Finding(path=place, message="stands here twice; a mapping gives weights")
        seen.add(url.rstrip("/"))
    if upstream.balance != "round_robin" and len(seen) < 2:
        message = "there is nothing to choose between: `base_url` has one server"
        yield Finding(path=(*path, "balance"), message=message, warning=True)


def _tls(upstream: Upstream, path: Path, has_path: Callable[[str], bool]) -> Iterator[Finding]:
    tls = upstream.tls
    for name, file in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)):
        if file is not None and not has_path(file):
            message = f"no such file: {file!r}"
            yield Finding(path=(*path, name), message=message, file=file)
    is_used = any(base.url.startswith("https:") for base in upstream.bases)
    if tls.cert is not None and not is_used:
        yield Finding(path=path, message="no base URL begins with https://", warning=True)
    if not tls.verify and is_used:
        message = "anyone between here and the server can read and change everything"
        yield Finding(path=(*path, "verify"), message=message, warning=True)
