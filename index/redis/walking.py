"""Live entries of all shards, newest first."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence

import msgspec

from index import record
from index.entry import Entry
from index.redis.door import Door
from index.redis.following import fetch
from index.redis.scripts import WALK
from index.redis.shards import NUM_SHARDS
from index.store import Filter

_FETCH = 32
"""Entries that are fetched at once."""
_LOOK_AT = 200
"""Entries of a shard that one script looks at, so that nobody waits long behind it."""


class Step(msgspec.Struct, frozen=True):
    """An entry that matches."""

    change: int
    shard: int
    key: str


class Found(msgspec.Struct, frozen=True):
    """An entry, and the number of the change that put it."""

    change: int
    entry: Entry


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
    door: Door, where: Filter, *, now: float, before: int | None
) -> AsyncIterator[Found]:
    """All that match."""
    steps: list[Step] = []
    async for step in _steps(door, where, now=now, before=before):
        steps.append(step)
        if len(steps) == _FETCH:
            for found in await _fetch(door, where, steps):
                yield found
            steps.clear()
    for found in await _fetch(door, where, steps):
        yield found


async def _fetch(door: Door, where: Filter, steps: list[Step]) -> list[Found]:
    stored = await asyncio.gather(*(fetch(door, step.key) for step in steps))
    entries = [record.decode(one) if one else None for one in stored]
    return [
        Found(step.change, entry)
        for step, entry in zip(steps, entries, strict=True)
        if entry is not None and (where.text is None or where.text in entry.prompt)
    ]


async def _steps(
    door: Door, where: Filter, *, now: float, before: int | None
) -> AsyncIterator[Step]:
    """Those that match in all but their text."""
    tags = (where.tag,) if where.tag is not None else ()
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
