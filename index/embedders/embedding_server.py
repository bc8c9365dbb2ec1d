"""The border to a server that makes embeddings. Light: who carries requests needs no numpy."""

from typing import Protocol

import msgspec


class Reply(msgspec.Struct, frozen=True):
    """What a server sent back."""

    status: int
    body: bytes


class Server(Protocol):
    """Who carries the requests."""

    name: str
    """For logs; no secrets."""

    async def ask(self, body: bytes) -> Reply:
        """Send to `/embeddings`. Raises EmbedderFault when there is no answer in time."""
        ...

    async def close(self) -> None:
        """Let go of connections. Idempotent."""
        ...
