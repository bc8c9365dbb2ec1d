"""A store in the memory of one process; gone with it."""

import asyncio
import itertools
import secrets
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from index.entry import Entry, Snapshot
from index.errors import StoreFault
from index.judgement import judge
from index.lease import Leases, NoLeases
from index.nearest import feed
from index.nearest.feed import Cursor, Deletion, Put
from index.purges import RETAIN_S, PurgeTable, examine, tags_of
from index.store import (
    ALL,
    Changes,
    Examined,
    Filter,
    Lookup,
    NotStored,
    Page,
    Purge,
    Purged,
    Stored,
    StoreStats,
    place_of,
)
from index.tags import key_tag
from index.tier import Held, Tier

MAX_COUNTED = 10_000
"""A real purge looks at the entries, to count and free them, only where there are no more."""
MAX_DELETIONS = 10_000
"""Deletions that the change feed remembers."""
STRIDE = 1_000
"""Entries that are looked at before others get their turn on the event loop."""


class MemoryStore:
    """`Store` for one process, bounded by `max_bytes` (as `Entry.size_bytes` counts)."""

    def __init__(self, *, max_bytes: int) -> None:
        self.secret = secrets.token_bytes(32)
        self.leases: Leases = NoLeases()
        self._tier = Tier(max_bytes=max_bytes)
        self._purges = PurgeTable(generation=secrets.token_hex(16))
        self._purged_at: dict[str, float] = {}
        self._change = 0
        self._deletions: deque[Deletion] = deque(maxlen=MAX_DELETIONS)
        self._forgotten_change = 0
        """The feed is complete after this change."""
        self._tallies: dict[str, Counter[str]] = {}
        self._closed = False

    async def get(self, key: str, *, now: float, tags: Sequence[str] = ()) -> Lookup:
        """See `Store.get`. Never suspends."""
        self._check_open()
        snapshot = self._purges.snapshot
        held = self._tier.get(key)
        if held is None:
            return Lookup(snapshot=snapshot)
        lookup = judge(
            held.entry, held.standing(self._purges), snapshot=snapshot, now=now, tags=tags
        )
        if lookup.entry is not None:
            self._tier.touch(held)
        return lookup

    async def examine(self, key: str, *, tags: Sequence[str] = ()) -> Examined:
        """See `Store.examine`."""
        self._check_open()
        held = self._tier.get(key)
        entry = None if held is None else held.entry
        return examine(self._purges, entry, key=key, tags=tags)

    async def snapshot(self) -> Snapshot:
        """See `Store.snapshot`."""
        self._check_open()
        return self._purges.snapshot

    async def put(self, entry: Entry) -> Stored | NotStored:
        """See `Store.put`."""
        self._check_open()
        admitted = self._purges.admits(entry)
        if admitted != "ok":
            return NotStored(reason=admitted)
        if not self._tier.fits(entry):
            return NotStored(reason="too_large")
        self._change += 1
        evicted = self._tier.put(entry, change=self._change)
        for held in evicted:
            self._log_deletion(held.entry.key)
        return Stored(evicted=len(evicted))

    async def delete(self, key: str) -> bool:
        """See `Store.delete`."""
        self._check_open()
        return self._free(key)

    async def purge(self, purge: Purge, *, now: float) -> Purged:
        """See `Store.purge`. Counts nothing (`matched` is None) above `MAX_COUNTED` entries."""
        self._check_open()
        tags = tags_of(purge)
        if purge.dry_run:
            return await self._count(tags, now=now)
        covered = self._covered(tags, now=now) if len(self._tier) <= MAX_COUNTED else None
        sequence = self._purges.mark(tags, soft=purge.soft)
        self._purged_at.update(dict.fromkeys(tags, now))
        freed = 0
        if covered is not None and not purge.soft:
            freed = sum(self._free(held.entry.key) for held in covered)
        matched = None if covered is None else len(covered)
        return Purged(matched=matched, entries=freed, sequence=sequence)

    async def scan(self, where: Filter, *, now: float, cursor: str | None, limit: int) -> Page:
        """See `Store.scan`."""
        self._check_open()
        place = place_of(cursor)
        before = self._change + 1 if place is None else place
        found = (
            held
            for held in self._tier.newest_first()
            if held.change < before and self._live(held, now) and _matches(held.entry, where)
        )
        page = list(itertools.islice(found, limit + 1))
        rest = str(page[limit - 1].change) if len(page) > limit else None
        return Page(entries=tuple(held.entry for held in page[:limit]), cursor=rest)

    async def changes(self, cursor: int, *, limit: int) -> Changes:
        """See `Store.changes`."""
        self._check_open()
        at = Cursor.parse(cursor, last=self._change)
        if at.until:
            upto = self._puts(after=at.after, until=at.until)
            return feed.first_page(at, upto[:limit], limit=limit)
        if not self._forgotten_change <= at.after <= self._change:
            return feed.reset()
        deletions = [gone for gone in self._deletions if gone.change > at.after]
        puts = self._puts(after=at.after, until=self._change)
        return feed.next_page(at, puts[:limit], deletions[:limit], limit=limit)

    async def tally(self, name: str, add: Mapping[str, int]) -> dict[str, int]:
        """See `Store.tally`."""
        self._check_open()
        counters = self._tallies.setdefault(name, Counter())
        counters.update(add)
        for spent in [field for field in add if counters[field] <= 0]:
            del counters[spent]
        return dict(counters)

    def vectors(self, *, identity: str, dimension: int) -> None:
        """See `Store.vectors`."""

    async def sweep(self, *, now: float) -> int:
        """See `Store.sweep`. Others run in between."""
        self._check_open()
        begun_at = self._purges.sequence
        freed = 0
        still_soft: set[str] = set()
        for index, held in enumerate(self._tier.oldest_first()):
            if index % STRIDE == STRIDE - 1:
                await asyncio.sleep(0)
            if self._tier.get(held.entry.key) is not held:
                continue
            if not self._live(held, now):
                freed += self._free(held.entry.key)
            elif held.standing(self._purges) == "soft_purged":
                still_soft.update((*held.entry.tags, key_tag(held.entry.key), ALL))
        self._forget_purges(before=now - RETAIN_S, begun_at=begun_at, still_soft=still_soft)
        return freed

    async def scrub(self) -> bool:
        """See `Store.scrub`. Nothing was written anywhere."""
        return True

    async def stats(self) -> StoreStats:
        """See `Store.stats`."""
        return StoreStats(
            entries=len(self._tier),
            memory_bytes=self._tier.used_bytes,
            disk_bytes=0,
            sequence=self._purges.sequence,
            evictions=self._tier.evictions,
        )

    async def close(self) -> None:
        """See `Store.close`."""
        self._closed = True
        self._tier.clear()

    async def check_integrity(self) -> None:
        """AssertionError unless the parts agree with each other."""
        self._tier.check_integrity()
        numbers = [held.change for held in self._tier.oldest_first()]
        assert numbers == sorted(set(numbers))
        assert set(self._purged_at) == set(self._purges.marks)
        assert all(mark.sequence <= self._purges.sequence for mark in self._purges.marks.values())

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFault("the store is closed")

    def _live(self, held: Held, now: float) -> bool:
        return now <= held.entry.keep_until and held.standing(self._purges) != "purged"

    def _free(self, key: str) -> bool:
        if self._tier.drop(key) is None:
            return False
        self._log_deletion(key)
        return True

    def _log_deletion(self, key: str) -> None:
        if len(self._deletions) == MAX_DELETIONS:
            self._forgotten_change = self._deletions[0].change
        self._change += 1
        self._deletions.append(Deletion(self._change, key))

    def _covered(self, tags: tuple[str, ...], *, now: float) -> list[Held]:
        asked = set(tags)
        return [
            held
            for held in self._tier.newest_first()
            if _covers(asked, held.entry) and self._live(held, now)
        ]

    async def _count(self, tags: tuple[str, ...], *, now: float) -> Purged:
        asked = set(tags)
        matched = 0
        for index, held in enumerate(self._tier.oldest_first()):
            if index % STRIDE == STRIDE - 1:
                await asyncio.sleep(0)
            matched += _covers(asked, held.entry) and self._live(held, now)
        return Purged(matched=matched, entries=0, sequence=self._purges.sequence)

    def _puts(self, *, after: int, until: int) -> list[Put]:
        newer = itertools.takewhile(lambda held: held.change > after, self._tier.newest_first())
        puts = [Put(held.change, held.entry) for held in newer if held.change <= until]
        puts.reverse()
        return puts

    def _forget_purges(self, *, before: float, begun_at: int, still_soft: set[str]) -> None:
        """Drop the marks that a whole sweep has made needless, so that they do not pile up."""
        for tag in [tag for tag, at in self._purged_at.items() if at <= before]:
            if self._purges.marks[tag].sequence <= begun_at and tag not in still_soft:
                self._purges.forget(tag)
                del self._purged_at[tag]


def _covers(asked: set[str], entry: Entry) -> bool:
    return ALL in asked or key_tag(entry.key) in asked or not asked.isdisjoint(entry.tags)


def _matches(entry: Entry, where: Filter) -> bool:
    return (
        (where.tag is None or where.tag in entry.tags)
        and (where.model is None or where.model == entry.model)
        and (where.tenant is None or where.tenant == entry.tenant)
        and (where.scope is None or where.scope == entry.scope)
        and (where.text is None or where.text in entry.prompt)
    )
