"""Where a Redis is and how to sign in, from a URL."""

import asyncio
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec
from redis.connection import parse_url

from index.errors import StoreUnusable


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `path` is that of a Unix socket; host and port do not count then."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    tls: bool = False
    username: str = ""
    password: str = ""
    database: int = 0

    def __str__(self) -> str:
        """Without what is secret."""
        return self.path or f"{self.host}:{self.port}"

    __repr__ = __str__

    def at(self, host: str, port: int) -> "Address":
        """Another server of the same cluster."""
        return msgspec.structs.replace(self, host=host, port=port)

    async def connect(self, protocol: asyncio.Protocol) -> None:
        """Open a connection for a protocol. Raises OSError."""
        loop = asyncio.get_running_loop()
        if self.path:
            await loop.create_unix_connection(lambda: protocol, self.path)
            return
        context = ssl.create_default_context() if self.tls else None
        await loop.create_connection(lambda: protocol, self.host, self.port, ssl=context)


def parse_address(url: str) -> Address:
    """From `redis://`, `rediss://` (TLS) or `unix://`. StoreUnusable, without the password."""
    try:
        parts: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]  # the library left it untyped
        scheme = urlsplit(url).scheme
    except ValueError as error:
        raise StoreUnusable(f"not the URL of a Redis: {error}") from error
    return Address(
        host=parts.get("host") or "localhost",
        port=parts.get("port") or 6379,
        path=parts.get("path") or "" if scheme == "unix" else "",
        tls=scheme == "rediss",
        username=parts.get("username") or "",
        password=parts.get("password") or "",
        database=int(parts.get("db") or 0),
    )
