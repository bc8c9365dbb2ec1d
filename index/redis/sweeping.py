"""Freeing what is purged, expired, or was dropped by Redis itself; forgetting old purges."""

import asyncio

from index.purges import RETAIN_S
from index.redis.door import Door
from index.redis.purging import level
from index.redis.scripts import FORGET, SNAPSHOT, SWEEP
from index.redis.shards import HEAD, NUM_SHARDS, name_of
from index.redis.vectors import put_in_owed, take_out_freed

_SWEEPER = f"{name_of(HEAD)}:sweeper"
_TAKEN_OVER_S = 120
_STEP = 200
"""Entries that one script looks at, so that nobody waits long behind it."""


async def is_sweeper(door: Door, name: str) -> bool:
    """Whether it is this one that sweeps; another takes over when it has not swept for long."""
    wire = door.servers.wire(HEAD)
    await wire.call("SET", _SWEEPER, name, "NX", "EX", _TAKEN_OVER_S)
    if await wire.call("GET", _SWEEPER) != name.encode():
        return False
    await wire.call("EXPIRE", _SWEEPER, _TAKEN_OVER_S)
    return True


async def resign(door: Door, name: str) -> None:
    """Let another one sweep, at once. A no-op unless it was this one."""
    wire = door.servers.wire(HEAD)
    if await wire.call("GET", _SWEEPER) == name.encode():
        await wire.call("DEL", _SWEEPER)


async def sweep(door: Door, *, now: float) -> int:
    """See `Store.sweep`. Also puts right what a process that died in a purge has left."""
    await door.renew()
    await _level(door)
    freed = sum([await _sweep_shard(door, shard, now=now) for shard in range(NUM_SHARDS)])
    await take_out_freed(door)
    await put_in_owed(door, now=now)
    return freed


async def _sweep_shard(door: Door, shard: int, *, now: float) -> int:
    _, begun_at = await door.run(SNAPSHOT, shard)
    freed, after = 0, "-inf"
    still_soft: set[bytes] = set()
    while after:
        num_freed, reached, *tags = await door.run(SWEEP, shard, after, repr(now), _STEP)
        freed += num_freed
        still_soft.update(tags)
        after = reached.decode()
    await door.run(FORGET, shard, repr(now - RETAIN_S), begun_at, *still_soft)
    return freed


async def _level(door: Door) -> None:
    """A purge under way makes the shards differ too, but not twice in the same way."""
    first, second = [
        await asyncio.gather(*(door.run(SNAPSHOT, shard) for shard in range(NUM_SHARDS)))
        for _ in range(2)
    ]
    if first == second and len({tuple(one) for one in first}) > 1:
        await level(door)
