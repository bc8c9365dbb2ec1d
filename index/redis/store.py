"""`Store` in a Redis, or a Redis Cluster, shared by several proxies.

    get       one script: the entry, and whether any purge covers it. One round trip
    put       one script. One round trip
    purge     one script a shard: first the one that counts purges, then all others at once
    scan, changes, dry runs, sweep    a little of each shard at a time

A memory tier in front saves the way of the record, never the question whether it still stands:
every hit is judged by the counters in Redis at that moment, so after a FLUSHALL, an empty restart
or an older backup nothing of it is served.
"""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from index import record
from index.entry import Entry, Snapshot
from index.errors import StoreFault, StoreUnusable
from index.eviction import MAX_USES, worth
from index.judgement import judge
from index.lease import Leases
from index.purges import Standing, tags_of
from index.redis import following, scripts, sweeping, walking
from index.redis.address import parse_address
from index.redis.door import Door
from index.redis.leases import RedisLeases
from index.redis.purging import purge_now
from index.redis.servers import Servers
from index.redis.shards import HEAD, NUM_SHARDS, shard_of
from index.redis.sieve import NoSieve, Sieve
from index.redis.uses import Uses
from index.redis.vectors import VECTOR_SPARE_BYTES, RedisVectors, has_vector_sets, space_of
from index.store import (
    ALL,
    Changes,
    Examined,
    Filter,
    Lookup,
    Mark,
    NotStored,
    Page,
    Purge,
    Purged,
    Stored,
    StoreStats,
    place_of,
)
from index.tags import RESERVED, key_tag
from index.tier import Tier

DEADLINE_S = 0.25
PATIENT_S = 5.0
MAX_SHARE = 4
"""No entry may take more than this part (a quarter) of its shard's bound."""
SPARE_S = 600
"""Redis itself drops an entry so long after `keep_until`; before that, sweeps do."""
_STANDINGS: dict[bytes, Standing] = {b"fresh": "fresh", b"soft_purged": "soft_purged"}


class RedisStore:
    """Open it with `open`. Belongs to one event loop; other processes share the Redis."""

    def __init__(
        self,
        door: Door,
        *,
        memory_bytes: int,
        max_bytes: int,
        num_replicas: int,
        sieve: Sieve | NoSieve,
        has_vectors: bool,
    ) -> None:
        """`has_vectors`: vectors are kept in Redis too."""
        self.secret = door.secret
        self.leases: Leases = RedisLeases(door)
        self._door = door
        self._tier = Tier(max_bytes=memory_bytes)
        self._uses = Uses(door)
        self._shard_bytes = max_bytes // NUM_SHARDS
        self._num_replicas = num_replicas
        self._has_vectors = has_vectors
        self._sieve = sieve
        sieve.start()
        self._name = secrets.token_hex(8)
        self._closed = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        memory_bytes: int,
        max_bytes: int,
        filter_bytes: int = 0,
        num_replicas: int = 0,
        deadline_s: float = DEADLINE_S,
        patient_s: float = PATIENT_S,
        vectors: bool = True,
    ) -> "RedisStore":
        """Open or make the store in the Redis at `url`, or in the cluster that it belongs to.

        `memory_bytes` bounds the memory tier, `max_bytes` all entries in Redis together, and
        `filter_bytes` the filter of keys that were never stored (0 for none, see `sieve`). A purge
        waits for `num_replicas` of each master. `vectors`: keep those in Redis too, where it has
        vector sets. No call lasts longer than `deadline_s` for a reply,
        but purges, which get `patient_s`. StoreUnusable when it cannot be reached or used.
        """
        servers = Servers(parse_address(url), deadline_s=deadline_s, patient_s=patient_s)
        door = Door(servers)
        try:
            await servers.open()
            await door.renew()
            has_vectors = vectors and await has_vector_sets(servers)
        except StoreFault as fault:
            await door.close()
            if isinstance(fault, StoreUnusable):
                raise
            message = f"cannot use the Redis at {servers.address}: {fault}"
            raise StoreUnusable(message) from fault
        return cls(
            door,
            memory_bytes=memory_bytes,
            max_bytes=max_bytes,
            num_replicas=num_replicas,
            sieve=Sieve(door, max_bytes=filter_bytes) if filter_bytes else NoSieve(),
            has_vectors=has_vectors,
        )

    async def get(self, key: str, *, now: float, tags: Sequence[str] = ()) -> Lookup:
        """See `Store.get`."""
        unasked = self._sieve.never_stored(key)
        if unasked is not None:
            return Lookup(snapshot=unasked)
        held = self._tier.get(key)
        known = str(held.change) if held is not None else ""
        reply = await self._door.run(scripts.GET, shard_of(key), key, known)
        snapshot = _snapshot(reply)
        standing = _STANDINGS.get(reply[2])
        if standing is None:
            self._tier.drop(key)
            return Lookup(snapshot=snapshot, reason=reply[2].decode())
        if held is not None and len(reply) == 4:
            entry: Entry | None = held.entry
        else:
            entry = record.decode(reply[4]) if len(reply) > 4 and reply[4] else None
        if entry is None or entry.key != key:
            return Lookup(snapshot=snapshot)
        lookup = judge(entry, standing, snapshot=snapshot, now=now, tags=tags)
        if lookup.entry is not None:
            self._serve(entry, change=int(reply[3]))
        return lookup

    async def examine(self, key: str, *, tags: Sequence[str] = ()) -> Examined:
        """See `Store.examine`. One round trip."""
        asked = (*tags, key_tag(key), ALL)
        reply = await self._door.run(scripts.EXAMINE, shard_of(key), key, *asked)
        entry = record.decode(reply[2]) if reply[2] else None
        marks = {
            tag.decode(): Mark(int(hard), int(soft))
            for tag, hard, soft in zip(reply[3::3], reply[4::3], reply[5::3], strict=True)
        }
        return Examined(snapshot=_snapshot(reply), entry=entry, marks=marks)

    async def snapshot(self) -> Snapshot:
        """See `Store.snapshot`. One round trip."""
        return _snapshot(await self._door.run(scripts.SNAPSHOT, HEAD))

    async def put(self, entry: Entry) -> Stored | NotStored:
        """See `Store.put`. One round trip."""
        space = space_of(entry.embedder) if self._has_vectors and entry.scope else ""
        size_bytes = entry.size_bytes()
        if space:
            size_bytes += len(entry.embedding) + VECTOR_SPARE_BYTES
        if size_bytes * MAX_SHARE > self._shard_bytes:
            self._check_open()
            return NotStored(reason="too_large")
        self._sieve.stored(entry.key)
        if self._uses.due:
            await self._uses.tell()
        lifetime_s = max(0.0, entry.keep_until - entry.created_at)
        word, evicted = await self._door.run(
            scripts.PUT,
            shard_of(entry.key),
            entry.key,
            entry.snapshot.generation,
            entry.snapshot.sequence,
            ",".join((*entry.tags, key_tag(entry.key), ALL)),
            ",".join(tag for tag in entry.tags if not tag.startswith(RESERVED)),
            record.encode(entry),
            repr(entry.keep_until),
            math.ceil(lifetime_s) + SPARE_S,
            size_bytes,
            repr(worth(entry, size_bytes=size_bytes)),
            self._shard_bytes,
            entry.model,
            entry.tenant,
            entry.scope,
            MAX_USES,
            space,
        )
        if word == b"stored":
            return Stored(evicted=evicted)
        return NotStored(reason=word.decode())

    async def delete(self, key: str) -> bool:
        """See `Store.delete`."""
        self._tier.drop(key)
        return bool(await self._door.run(scripts.DELETE, shard_of(key), key))

    async def purge(self, purge: Purge, *, now: float) -> Purged:
        """See `Store.purge`. StoreFault when not all shards, or too few replicas, acknowledge it:
        it may then count all the same, and can be repeated."""
        if purge.dry_run:
            sequence = (await self.snapshot()).sequence
            matched = await walking.count(self._door, tags_of(purge), now=now)
            return Purged(matched=matched, entries=0, sequence=sequence)
        purged = await purge_now(self._door, purge, now=now, num_replicas=self._num_replicas)
        self._sieve.saw(purged.snapshot)
        return purged.reply

    async def scan(self, where: Filter, *, now: float, cursor: str | None, limit: int) -> Page:
        """See `Store.scan`."""
        before = place_of(cursor)
        page: list[Entry] = []
        last = 0
        async for found in walking.newest_first(self._door, where, now=now, before=before):
            if len(page) == limit:
                return Page(entries=tuple(page), cursor=str(last))
            page.append(found.entry)
            last = found.change
        return Page(entries=tuple(page), cursor=None)

    async def changes(self, cursor: int, *, limit: int) -> Changes:
        """See `Store.changes`."""
        return await following.changes(self._door, cursor, limit=limit)

    async def tally(self, name: str, add: Mapping[str, int]) -> dict[str, int]:
        """See `Store.tally`. One round trip."""
        pairs = [one for pair in add.items() for one in pair]
        reply = await self._door.run(scripts.TALLY, shard_of(name), name, *pairs)
        return {reply[i].decode(): int(reply[i + 1]) for i in range(0, len(reply), 2)}

    def vectors(self, *, identity: str, dimension: int) -> RedisVectors | None:
        """See `Store.vectors`."""
        if not self._has_vectors:
            return None
        return RedisVectors(self._door, identity=identity, dimension=dimension)

    async def sweep(self, *, now: float) -> int:
        """See `Store.sweep`. One of the processes that share the Redis does it for all."""
        await self._uses.tell()
        freed = 0
        if await sweeping.is_sweeper(self._door, self._name):
            freed = await sweeping.sweep(self._door, now=now)
        for held in self._tier.oldest_first():
            if now > held.entry.keep_until:
                self._tier.drop(held.entry.key)
        return freed

    async def scrub(self) -> bool:
        """See `Store.scrub`. What Redis has freed it holds no more; what its own log or dump still
        has goes with their next rewrite, which is for its keepers to ask for (BGREWRITEAOF)."""
        return True

    async def stats(self) -> StoreStats:
        """See `Store.stats`."""
        shards = await self._all(scripts.STATS)
        entries, num_bytes, evictions, sequences = (
            [int(value) for value in column] for column in zip(*shards, strict=True)
        )
        return StoreStats(
            entries=sum(entries),
            memory_bytes=self._tier.used_bytes,
            disk_bytes=sum(num_bytes),
            sequence=max(sequences),
            evictions=sum(evictions),
        )

    async def close(self) -> None:
        """See `Store.close`."""
        if self._closed:
            return
        self._closed = True
        await self._sieve.close()
        with contextlib.suppress(StoreFault):  # then another one sweeps a little later
            await sweeping.resign(self._door, self._name)
        await self._door.close()
        self._tier.clear()

    async def check_integrity(self) -> None:
        """AssertionError unless the parts of each shard agree with each other."""
        self._tier.check_integrity()
        for entries, accounts, ranks, counted, held, both in await self._all(scripts.CHECK):
            assert entries == accounts == ranks
            assert int(counted) == int(held) <= self._shard_bytes
            assert both == 0

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFault("the store is closed")

    def _serve(self, entry: Entry, *, change: int) -> None:
        self._uses.count(entry.key)
        held = self._tier.get(entry.key)
        if held is not None and held.change == change:
            self._tier.touch(held)
        elif self._tier.fits(entry):
            self._tier.put(entry, change=change)

    async def _all(self, script: scripts.Script) -> list[Any]:
        return await asyncio.gather(*(self._door.run(script, shard) for shard in range(NUM_SHARDS)))


def _snapshot(reply: list[bytes]) -> Snapshot:
    return Snapshot(generation=reply[0].decode(), sequence=int(reply[1]))
