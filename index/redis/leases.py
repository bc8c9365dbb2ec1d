"""Leases over Redis: of several replicas that miss the same key, one makes the answer."""

import asyncio
import secrets

from index.errors import StoreFault
from index.lease import Lease
from index.redis.door import Door
from index.redis.scripts import ACQUIRE, RELEASE
from index.redis.shards import name_of, shard_of

_FIRST_LOOK_S = 0.02
_LONGEST_PAUSE_S = 0.2

_RELEASED = "released"
_RELEASED_MS = 1000
"""How long it is told that a lease was released; longer than a look and the filter lag behind."""


class RedisLease:
    """A key of ours in Redis, until it is released or expires."""

    def __init__(self, door: Door, key: str, token: str) -> None:
        self._door = door
        self._key = key
        self._token = token

    async def release(self) -> None:
        """See `Lease.release`."""
        wire = self._door.servers.wire(shard_of(self._key))
        name = _name(self._key)
        await RELEASE.run(wire, name, self._token, _RELEASED, _RELEASED_MS)


class RedisLeases:
    """`Leases` shared by all who use one Redis."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def acquire(self, key: str, *, ttl_s: float, looked: bool = False) -> Lease | None:
        """See `Leases.acquire`. One round trip."""
        token = secrets.token_hex(16)
        wire = self._door.servers.wire(shard_of(key))
        ttl_ms = max(1, int(ttl_s * 1000))
        taken = await ACQUIRE.run(wire, _name(key), token, ttl_ms, _RELEASED, int(looked))
        return RedisLease(self._door, key, token) if taken else None

    async def wait(self, key: str, *, timeout_s: float) -> bool:
        """See `Leases.wait`. Looks again and again, at most five times a second in the long run."""
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + timeout_s, _FIRST_LOOK_S
        while True:
            try:
                held = await self._door.servers.wire(shard_of(key)).call("GET", _name(key))
            except StoreFault:
                return True  # whoever holds it may be gone with the store
            if held is None or held == _RELEASED.encode():
                return True
            left_s = until - loop.time()
            if left_s <= 0:
                return False
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _name(key: str) -> str:
    return f"{name_of(shard_of(key))}:lease:{key}"
