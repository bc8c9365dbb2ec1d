"""Which forward proxy leads to a server, as the environment says it: `HTTP_PROXY`, `HTTPS_PROXY`,
`ALL_PROXY` and `NO_PROXY`, read as curl reads them. Pure.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping

import httpx
import msgspec

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST = re.compile(rb"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_PORTS = {"http": 80, "https": 443}


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """To a server: straight, or through a forward proxy."""

    proxy: str | None = None
    """Its URL, without credentials."""
    connect_headers: dict[str, str] | None = None
    """For the proxy alone, as it opens a tunnel to an https server."""
    headers: tuple[tuple[str, str], ...] = ()
    """Added to each request to an http server, which the proxy reads and passes on."""


def way_to(url: httpx.URL, proxies: Mapping[str, str]) -> Way:
    """`proxies`: as of `urllib.request.getproxies`, by scheme, with `all` and `no`. Raises
    ValueError, in words that hold no secret, where the proxy is of no use."""
    name = url.scheme if proxies.get(url.scheme) else "all"
    address = proxies.get(name)
    if not address or _is_excepted(url, proxies.get("no", "")):
        return Way()
    proxy = _parsed(address, variable=f"{name.upper()}_PROXY")
    bare = str(proxy.copy_with(username=None, password=None))
    if not proxy.userinfo:
        return Way(proxy=bare)
    credential = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    header = ("proxy-authorization", f"Basic {credential}")
    if url.scheme == "https":
        return Way(proxy=bare, connect_headers=dict((header,)))
    return Way(proxy=bare, headers=(header,))


def _parsed(address: str, *, variable: str) -> httpx.URL:
    scheme = _SCHEME.match(address)
    if scheme is not None and scheme[1].lower() not in _PORTS:
        raise ValueError(f"{variable}: {scheme[0]} is not supported; http:// and https:// are")
    try:
        proxy = httpx.URL(address if scheme else f"http://{address}")
    except httpx.InvalidURL:
        proxy = httpx.URL()
    if not _HOST.fullmatch(proxy.raw_host):
        raise ValueError(f"{variable}: not the URL of a proxy")  # it may hold a password
    return proxy


def _is_excepted(url: httpx.URL, exceptions: str) -> bool:
    host = url.raw_host.decode().lower().rstrip(".")
    port = url.port or _PORTS.get(url.scheme)
    return any(_covers(one, host, port) for one in exceptions.lower().replace(",", " ").split())


def _covers(exception: str, host: str, port: int | None) -> bool:
    """`exception`: `*`, a network, or a domain or an address with or without a port."""
    if exception == "*":
        return True
    network = _network(exception)
    if network is not None:
        return _is_within(host, network)
    name, _, wanted = exception.rpartition(":")
    if not name:
        name, wanted = exception, ""
    if wanted and wanted != str(port):
        return False
    domain = name.strip("[]").removeprefix("*").strip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def _is_within(host: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")) in network
    except ValueError:
        return False
