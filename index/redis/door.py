"""Running a script where its shard is, whatever has happened to the servers meanwhile."""

import asyncio
from typing import Any

from index.errors import StoreFault
from index.redis.generation import renew
from index.redis.scripts import Script
from index.redis.servers import Servers, is_moved
from index.redis.shards import name_of
from index.redis.wire import Argument, Refused

_TRIES = 3


class Door:
    """To all shards. What was lost is renewed once, whoever notices it first."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self._renewal: asyncio.Task[str] | None = None

    async def run(self, script: Script, shard: int, *arguments: Argument) -> Any:
        """Run a script on a shard; its reply. StoreFault when that fails."""
        for _ in range(_TRIES):
            try:
                return await script.run(self.servers.wire(shard), name_of(shard), *arguments)
            except Refused as refusal:
                await self.recover(refusal)
        raise StoreFault("Redis keeps changing; given up")

    async def recover(self, refusal: Refused) -> None:
        """Do what makes another try worth it; raises the refusal when nothing does."""
        if refusal.word == "LOST":
            await self.renew()
        elif is_moved(refusal):
            self.servers.look_again()
            await self.servers.refresh()
            if refusal.word == "READONLY":
                raise refusal
        else:
            raise refusal

    async def renew(self) -> str:
        """See `index.redis.generation.renew`; those who ask at the same time share one."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(renew(self.servers))
        return await asyncio.shield(self._renewal)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        await self.servers.close()
