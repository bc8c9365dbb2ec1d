"""Leases over Redis: of several replicas that miss the same key, one makes the answer."""

import asyncio
import secrets

from index.errors import StoreFault
from index.lease import Lease
from index.redis.door import Door
from index.redis.shards import name_of, shard_of

_FIRST_LOOK_S = 0.02
_LONGEST_PAUSE_S = 0.2

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RedisLease:
    """A key of ours in Redis, until it is released or expires."""

    def __init__(self, door: Door, key: str, token: str) -> None:
        self._door = door
        self._key = key
        self._token = token

    async def release(self) -> None:
        """See `Lease.release`."""
        wire = self._door.servers.wire(shard_of(self._key))
        await wire.call("EVAL", _RELEASE, 1, _name(self._key), self._token)


class RedisLeases:
    """`Leases` shared by all who use one Redis."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def acquire(self, key: str, *, ttl_s: float) -> Lease | None:
        """See `Leases.acquire`. One round trip."""
        token = secrets.token_hex(16)
        wire = self._door.servers.wire(shard_of(key))
        taken = await wire.call("SET", _name(key), token, "NX", "PX", max(1, int(ttl_s * 1000)))
        return RedisLease(self._door, key, token) if taken is not None else None

    async def wait(self, key: str, *, timeout_s: float) -> bool:
        """See `Leases.wait`. Looks again and again, at most five times a second in the long run."""
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + timeout_s, _FIRST_LOOK_S
        while True:
            try:
                held = await self._door.servers.wire(shard_of(key)).call("EXISTS", _name(key))
            except StoreFault:
                return True  # whoever holds it may be gone with the store
            if not held:
                return True
            left_s = until - loop.time()
            if left_s <= 0:
                return False
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _name(key: str) -> str:
    return f"{name_of(shard_of(key))}:lease:{key}"
