"""Live entries of all shards, newest first."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from index.redis.door import Door
from index.redis.scripts import WALK
from index.redis.shards import NUM_SHARDS
from index.store import Filter

_LOOK_AT = 200
"""Entries of a shard that one script looks at, so that nobody waits long behind it."""


class Step(msgspec.Struct, frozen=True):
    """An entry that matches."""

    change: int
    shard: int
    key: str


class _Walk:
    """One shard's part: what was found and not taken yet, and how far it has come."""

    def __init__(self, shard: int, before: int | None) -> None:
        self.shard = shard
        self.before: str | None = "+inf" if before is None else str(before)
        self.found: deque[Step] = deque()

    async def fill(self, door: Door, where: Filter, tags: Sequence[str], now: float) -> None:
        """Go on until something is found, or the end."""
        while not self.found and self.before is not None:
            reply = await door.run(
                WALK, self.shard, self.before, repr(now), _LOOK_AT,
                where.model or "", where.tenant or "", where.scope or "", *tags,
            )  # fmt: skip
            reached, *pairs = (part.decode() for part in reply)
            self.before = reached or None
            self.found.extend(
                Step(int(change), self.shard, key)
                for key, change in zip(pairs[::2], pairs[1::2], strict=True)
            )


async def newest_first(
    door: Door, where: Filter, *, tags: Sequence[str], now: float, before: int | None
) -> AsyncIterator[Step]:
    """All that match `where` (but for its text) and have one of `tags`, if there are any."""
    walks = [_Walk(shard, before) for shard in range(NUM_SHARDS)]
    while True:
        await asyncio.gather(
            *(walk.fill(door, where, tags, now) for walk in walks if not walk.found)
        )
        walks = [walk for walk in walks if walk.found]
        if not walks:
            return
        yield max(walks, key=lambda walk: walk.found[0].change).found.popleft()


async def count(door: Door, tags: Sequence[str], *, now: float) -> int:
    """How many live entries have one of `tags`. Looks at all there are, a little at a time."""

    async def count_shard(shard: int) -> int:
        walk, num_found = _Walk(shard, None), 0
        while True:
            await walk.fill(door, Filter(), tags, now)
            if not walk.found:
                return num_found
            num_found += len(walk.found)
            walk.found.clear()

    return sum(await asyncio.gather(*map(count_shard, range(NUM_SHARDS))))
