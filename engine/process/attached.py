"""A worker process that somebody else started, from the side of one of its clients."""

import asyncio

from engine.process.connection import Connection

_TRY_AGAIN_S = 0.1


class Attached(Connection):
    """A connection to an `engine.process.relay.Relay`. Made by `connect`; `end` closes it."""

    pid = None

    @classmethod
    async def connect(cls, path: str) -> "Attached":
        """Waits until somebody listens on the Unix socket `path`. Raises OSError."""
        while True:
            try:
                return cls(*await asyncio.open_unix_connection(path))
            except (FileNotFoundError, ConnectionError):
                await asyncio.sleep(_TRY_AGAIN_S)

    async def end(self) -> int:
        """Idempotent. There is no exit code to be had: 0."""
        self._writer.close()
        return 0
