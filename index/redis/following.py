"""The change feed out of all shards. `index.nearest.feed` makes its pages, from change numbers in
time.

A cursor is a point in the servers' time. What a server puts after it has been asked has a later
number than its clock showed then; so nothing is missed up to the earliest of the clocks.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from index import record
from index.nearest import feed
from index.nearest.feed import Cursor, Deletion, Put
from index.redis.door import Door
from index.redis.scripts import CHANGES
from index.redis.shards import NUM_SHARDS, name_of, shard_of
from index.store import Changes

_MANY = 1000


class _Numbered(msgspec.Struct, frozen=True):
    """A key and the number of a change."""

    change: int
    key: str


class _Seen(msgspec.Struct, frozen=True):
    """What all shards say, up to the moment for which all of them can speak."""

    last: int
    forgotten: int
    puts: list[_Numbered]
    deletions: list[_Numbered]


async def changes(door: Door, number: int, *, limit: int) -> Changes:
    """See `Store.changes`."""
    if number:
        at = Cursor.parse(number, last=0)
    else:
        last = (await _look(door, after=0, until=0, limit=0)).last
        if not last:
            return Changes(put=(), deleted=(), cursor=0)
        at = Cursor(after=0, until=last)
    seen = await _look(door, after=at.after, until=at.until or None, limit=limit)
    if at.until:
        return feed.first_page(at, await read(door, seen.puts[:limit]), limit=limit)
    if not seen.forgotten <= at.after:
        return feed.reset()
    puts = await read(door, seen.puts[:limit])
    gone = [Deletion(one.change, one.key) for one in seen.deletions[:limit]]
    return feed.next_page(at, puts, gone, limit=limit)


class Follower:
    """Of the keys alone: each that was put since it was asked last."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._after = 0

    async def keys(self) -> AsyncIterator[str]:
        """All that there are, at first; some come twice."""
        while True:
            seen = await _look(self._door, after=self._after, until=None, limit=_MANY)
            for one in seen.puts[:_MANY]:
                yield one.key
                self._after = one.change
            if len(seen.puts) < _MANY:
                return


async def read(door: Door, numbered: Sequence[_Numbered]) -> list[Put]:
    """The entries, as they are now; one that is gone again, or cannot be read, is None."""

    async def one(each: _Numbered) -> Put:
        stored = await fetch(door, each.key)
        return Put(each.change, record.decode(stored) if stored else None)

    return list(await asyncio.gather(*map(one, numbered)))


async def fetch(door: Door, key: str) -> bytes | None:
    """The record under a key, whatever was purged."""
    shard = shard_of(key)
    found: bytes | None = await door.servers.wire(shard).call(
        "HGET", f"{name_of(shard)}:entry:{key}", "record"
    )
    return found


async def _look(door: Door, *, after: int, until: int | None, limit: int) -> _Seen:
    upto = "+inf" if until is None else until
    replies = await asyncio.gather(
        *(door.run(CHANGES, shard, after, upto, limit) for shard in range(NUM_SHARDS))
    )
    safe = min(int(reply[0]) for reply in replies)
    last = max(int(reply[1]) for reply in replies)
    return _Seen(
        min(safe, last),
        max(int(reply[2]) for reply in replies),
        _merged([reply[3] for reply in replies], safe),
        _merged([reply[4] for reply in replies], safe),
    )


def _merged(pages: list[list[Any]], safe: int) -> list[_Numbered]:
    numbered = [
        _Numbered(int(change), key.decode())
        for page in pages
        for key, change in zip(page[::2], page[1::2], strict=True)
    ]
    return sorted((one for one in numbered if one.change <= safe), key=lambda one: one.change)
