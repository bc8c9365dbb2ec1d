"""How often entries were served, counted here and told to Redis now and then."""

import asyncio

from index.eviction import MAX_USES
from index.redis.door import Door
from index.redis.scripts import TOUCH
from index.redis.shards import shard_of

_MANY = 256
"""Uses after which they are due to be told."""
_MAX_KEYS = 4096
"""Keys whose uses are counted between two tellings; further ones go uncounted."""


class Uses:
    """Eviction weighs them, so that nothing popular goes. Lost ones cost a little wrong order."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._counts: dict[str, int] = {}
        self._total = 0

    @property
    def due(self) -> bool:
        """There are many."""
        return self._total >= _MANY

    def count(self, key: str) -> None:
        """An entry was served."""
        before = self._counts.get(key, 0)
        if before or len(self._counts) < _MAX_KEYS:
            self._counts[key] = before + 1
            self._total += 1

    async def tell(self) -> None:
        """Write them down, one script a shard."""
        counts, self._counts, self._total = self._counts, {}, 0
        by_shard: dict[int, list[str | int]] = {}
        for key, uses in counts.items():
            by_shard.setdefault(shard_of(key), []).extend((key, uses))
        await asyncio.gather(
            *(self._door.run(TOUCH, shard, MAX_USES, *told) for shard, told in by_shard.items())
        )
