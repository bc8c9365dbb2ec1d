"""Which server has which shard: one server, or the masters of a cluster."""

import asyncio
import logging
from typing import Any

import msgspec
from redis.crc import key_slot

from index.errors import StoreFault, StoreUnusable
from index.redis.address import Address
from index.redis.lane import Lane
from index.redis.shards import NUM_SHARDS, name_of
from index.redis.wire import Refused, Wire, info

log = logging.getLogger("rejoinder.redis")

_PATIENCE_S = 0.5
"""Between two looks at a cluster that has lost a server."""


class Server:
    """One server: a lane for what is quick, and one for purges, which may wait for replicas."""

    def __init__(self, address: Address, *, deadline_s: float, patient_s: float) -> None:
        self.address = address
        self.lane = Lane(address, deadline_s=deadline_s)
        self.purging = Lane(address, deadline_s=patient_s)

    async def close(self) -> None:
        """Idempotent."""
        await self.lane.close()
        await self.purging.close()


class Place(msgspec.Struct, frozen=True):
    """A server and shards that it has."""

    wire: Wire
    shards: tuple[int, ...]


class Servers:
    """Follows a cluster when shards move and masters change. Belongs to one event loop."""

    def __init__(self, address: Address, *, deadline_s: float, patient_s: float) -> None:
        """`deadline_s`: the longest wait for a reply; `patient_s`: the same for purges."""
        self.address = address
        self.patient_s = patient_s
        self.deadline_s = deadline_s
        first = self._server(address)
        self._servers = {address: first}
        self._owners = [first] * NUM_SHARDS
        self._clustered = False
        self._closed = False
        self._search: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect to all. StoreUnusable when that fails, or when Redis may drop counters."""
        try:
            wire = await self._owners[0].lane.up(timeout_s=self.patient_s)
            self._clustered = info(await wire.call("INFO", "cluster"))["cluster_enabled"] == "1"
            await self.refresh()
            for server in self._servers.values():
                await server.purging.up(timeout_s=self.patient_s)
                wire = await server.lane.up(timeout_s=self.patient_s)
                _check_policy(server.address, info(await wire.call("INFO", "memory")))
        except StoreUnusable:
            raise
        except StoreFault as fault:
            message = f"cannot use the Redis at {self.address}: {fault}"
            raise StoreUnusable(message) from fault

    def wire(self, shard: int) -> Wire:
        """To the server of a shard, for what is quick. StoreFault at once when it is not there."""
        try:
            return self._owners[shard].lane.wire()
        except StoreFault:
            self.look_again()
            raise

    async def purging_wires(self) -> list[Wire]:
        """To the server of each shard, by shard, for purges. Waits for servers that are away, or
        for others in their place, for as long as the caller does."""
        while not self._closed:
            ups = [owner.purging.up(timeout_s=_PATIENCE_S) for owner in self._owners]
            wires = await asyncio.gather(*ups, return_exceptions=True)
            standing = [wire for wire in wires if isinstance(wire, Wire)]
            if len(standing) == NUM_SHARDS:
                return standing
            self.look_again()
        raise StoreFault("the store is closed")

    def look_again(self) -> None:
        """The cluster may have changed: ask, in the background. A no-op for a single server."""
        if self._clustered and (self._search is None or self._search.done()):
            self._search = asyncio.create_task(self._seek())

    async def refresh(self) -> None:
        """Learn which master has which shard from the first server that can tell."""
        if not self._clustered:
            return
        fault = StoreFault("no server of the cluster answers")
        for server in list(self._servers.values()):
            try:
                wire = server.lane.wire()
                self._adopt(server.address, await wire.call("CLUSTER", "SLOTS"))
                return
            except StoreFault as error:
                fault = error
        raise fault

    async def close(self) -> None:
        """Idempotent."""
        self._closed = True
        if self._search is not None:
            self._search.cancel()
        for server in self._servers.values():
            await server.close()

    def _server(self, address: Address) -> Server:
        return Server(address, deadline_s=self.deadline_s, patient_s=self.patient_s)

    def _adopt(self, told_by: Address, ranges: list[Any]) -> None:
        """Servers that are new get their lanes; old ones stay, in case they come back."""
        for shard in range(NUM_SHARDS):
            slot = key_slot(name_of(shard).encode())
            for first, last, master, *_ in ranges:
                if first <= slot <= last:
                    address = told_by.at(master[0].decode() or told_by.host, master[1])
                    if address not in self._servers:
                        self._servers[address] = self._server(address)
                    self._owners[shard] = self._servers[address]
                    break
            else:
                raise StoreFault(f"no server of the cluster has the slot {slot}")

    async def _seek(self) -> None:
        try:
            await self.refresh()
        except StoreFault as fault:
            log.debug("%s", fault)
        await asyncio.sleep(_PATIENCE_S)


def is_moved(fault: StoreFault) -> bool:
    """The shard has moved to another server of the cluster."""
    return isinstance(fault, Refused) and fault.word in ("MOVED", "ASK", "READONLY")


def _check_policy(address: Address, memory: dict[str, str]) -> None:
    """Counters have no time to live: only policies that evict keys without one endanger them."""
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys"):
        raise StoreUnusable(
            f"the Redis at {address} has `maxmemory-policy {policy}`, which may evict the purge "
            "counters: set `volatile-lfu`, another `volatile-*`, or `noeviction`"
        )
