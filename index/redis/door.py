"""Running a script where its shard is, whatever has happened to the servers meanwhile."""

import asyncio
import logging
import secrets
from typing import Any

from index.errors import StoreFault
from index.redis.generation import renew
from index.redis.scripts import Script
from index.redis.servers import Servers, is_moved
from index.redis.shards import HEAD, name_of
from index.redis.wire import Argument, Refused

log = logging.getLogger("rejoinder.redis")

_TRIES = 3
_SECRET = f"{name_of(HEAD)}:secret"


class Door:
    """To all shards. What was lost is renewed once, whoever notices it first."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.secret = b""
        """Of the store; what comes new after a loss gets it too."""
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
            await self._renewed()
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
            self._renewal = asyncio.create_task(self._renew())
        return await asyncio.shield(self._renewal)

    async def _renewed(self) -> None:
        """Whoever waits for an answer waits no longer than for a reply; the work goes on."""
        try:
            async with asyncio.timeout(self.servers.deadline_s):
                await self.renew()
        except TimeoutError as error:
            raise StoreFault("the counters in Redis are still being renewed") from error

    async def _renew(self) -> str:
        generation = await renew(self.servers)
        offered = self.secret or secrets.token_bytes(32)
        wire = self.servers.wire(HEAD)
        await wire.call("SET", _SECRET, offered, "NX")
        secret: bytes = await wire.call("GET", _SECRET) or offered
        if self.secret and secret != self.secret:
            # Keys are made with the secret that was there at the start: no harm, but no sharing.
            log.error("Redis has another store's secret now: restart to share what is stored")
        self.secret = self.secret or secret
        return generation

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        await self.servers.close()
