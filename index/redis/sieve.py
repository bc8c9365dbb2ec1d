"""Which keys were never stored, so that nobody has to ask Redis for them. Off unless asked for.

What may be left out is the question for the entry, never the snapshot of purges that a request
carries. A key that was never stored gets the snapshot of its shard that this process saw last, at
most a moment ago. That is safe in both of its uses:

- For the entry that is made: an older snapshot has seen fewer purges, so it refuses more.
- For joining a flight, which only those may that saw the same purges: a key is never stored *for
  this process* once, at its first request, when no flight of it can be under way here; from then
  on it is asked for in Redis like any other. So the filter must never forget a key, and once it
  is full it is of no use any more.

What other replicas store comes through the change feed; until then a hit is missed, no more.
"""

import asyncio
import logging

from index.bloom import BloomFilter
from index.entry import Snapshot
from index.errors import StoreFault
from index.redis.door import Door
from index.redis.following import Follower
from index.redis.scripts import SNAPSHOT
from index.redis.shards import NUM_SHARDS, shard_of

log = logging.getLogger("rejoinder.redis")

_EVERY_S = 0.25
_TRUSTED_S = 2.0
"""A feed that has not been read for so long says nothing about what is stored now."""


class Sieve:
    """Follows the store in the background from `start` to `close`."""

    def __init__(self, door: Door, *, max_bytes: int) -> None:
        self._door = door
        self._keys = BloomFilter(max_bytes=max_bytes)
        self._snapshots: list[Snapshot] = []
        self._known_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to read what is stored; until it is known everything is asked for."""
        self._task = asyncio.create_task(self._follow())

    def never_stored(self, key: str) -> Snapshot | None:
        """The snapshot to go on with when the key was surely never stored; None: ask Redis."""
        if key in self._keys:
            return None
        self._keys.add(key)  # for the next one who asks
        if self._keys.full or self._loop.time() - self._known_at > _TRUSTED_S:
            return None
        return self._snapshots[shard_of(key)]

    def stored(self, key: str) -> None:
        """This process stores something under the key."""
        self._keys.add(key)

    def saw(self, snapshot: Snapshot) -> None:
        """A purge of this process is in all shards."""
        self._snapshots = [snapshot] * NUM_SHARDS

    async def close(self) -> None:
        """Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        follower = Follower(self._door)
        while not self._keys.full:
            try:
                begun_at = self._loop.time()
                async for key in follower.keys():
                    self._keys.add(key)
                current = await self._current()
                self._snapshots = list(map(_later, self._snapshots or current, current))
                self._known_at = begun_at
            except StoreFault as fault:
                log.debug("the filter cannot follow the store: %s", fault)
            await asyncio.sleep(_EVERY_S)
        log.warning("the filter of keys is full: every lookup asks Redis from now on")

    async def _current(self) -> list[Snapshot]:
        replies = await asyncio.gather(
            *(self._door.run(SNAPSHOT, shard) for shard in range(NUM_SHARDS))
        )
        return [Snapshot(generation=one[0].decode(), sequence=int(one[1])) for one in replies]


def _later(known: Snapshot, read: Snapshot) -> Snapshot:
    """What was read may be older than what a purge of this process has told since."""
    if known.generation == read.generation and known.sequence > read.sequence:
        return known
    return read


class NoSieve:
    """Nothing is known; Redis is asked for every key."""

    def start(self) -> None:
        """See `Sieve`."""

    def never_stored(self, key: str) -> Snapshot | None:
        """See `Sieve`."""
        return None

    def stored(self, key: str) -> None:
        """See `Sieve`."""

    def saw(self, snapshot: Snapshot) -> None:
        """See `Sieve`."""

    async def close(self) -> None:
        """See `Sieve`."""
