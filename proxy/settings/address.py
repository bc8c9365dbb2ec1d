"""Addresses to listen on, as the config writes them."""

import ipaddress
import re

import msgspec

_TCP = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})")
_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104  # recognised here, not bound


class Tcp(msgspec.Struct, frozen=True, kw_only=True):
    """A host without brackets and a port; port 0 takes a free one."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Reachable from this machine only. A name other than `localhost` counts as reachable."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def clashes_with(self, other: "Tcp | Unix") -> bool:
        """Both cannot be listened on at once."""
        if not isinstance(other, Tcp) or self.port != other.port or self.port == 0:
            return False
        return self.host == other.host or bool(_WILDCARDS & {self.host, other.host})

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Unix(msgspec.Struct, frozen=True, kw_only=True):
    """A socket in the file system; who may connect is a matter of file permissions."""

    path: str

    @property
    def loopback(self) -> bool:
        """Always: it does not leave the machine."""
        return True

    def clashes_with(self, other: "Tcp | Unix") -> bool:
        """Both cannot be listened on at once."""
        return self == other

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = Tcp | Unix


def parse_address(text: str) -> Address:
    """`127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` or `unix:/run/rejoinder.sock`.

    Raises ValueError with a message for the user.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError("a Unix socket needs an absolute path: unix:/run/rejoinder.sock")
        return Unix(path=path)
    match = _TCP.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("expected HOST:PORT, [IPv6]:PORT or unix:/path")
    return Tcp(host=_host(match), port=int(match["port"]))


def _host(match: re.Match[str]) -> str:
    if match["six"] is None:
        return match["host"]
    try:
        return str(ipaddress.IPv6Address(match["six"]))
    except ValueError:
        raise ValueError("what stands in brackets must be an IPv6 address") from None
