"""`Store` in one SQLite file with a memory tier in front.

    get    the tier, checked against the file's `data_version`; else one row of the file: no await
    put    the writer thread, which commits in batches
    purge  the writer thread, before everything else, with an fsync
    scan, changes, dry runs    the scanner thread

A hit in the tier is judged by the same purge table as one in the file, and an entry that another
process overwrote or freed leaves the tier before it can be served again.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from index.entry import Entry, Snapshot
from index.errors import StoreFault, StoreUnusable
from index.judgement import judge
from index.lease import Leases, NoLeases
from index.purges import examine
from index.sqlite.database import Database, open_database
from index.sqlite.purging import purge_now
from index.sqlite.reader import Found, Reader
from index.sqlite.scanner import Scanner
from index.sqlite.sweeping import (
    Forgetting,
    Step,
    forget_purges,
    shrink,
    sweep_excess,
    sweep_expired,
    sweep_purged,
)
from index.sqlite.tallying import add_to_tally
from index.sqlite.transaction import Transaction
from index.sqlite.writer import Writer
from index.store import (
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
)
from index.tier import Tier

MANY_USES = 256
"""Uses that are written along with the next put, once there are so many."""
LOOK_EVERY_S = 0.05
"""The longest that a look at the file is left out, whatever the pulse says."""
SCRUB_TRIES = 40
SCRUB_PAUSE_S = 0.05
"""Readers are brief: the log can be emptied in between."""
MAX_USED = 4096
"""Entries whose uses are counted between two writes; further ones go uncounted."""


class SqliteStore:
    """Open it with `open`. Belongs to one event loop; other processes may share the file."""

    def __init__(self, database: Database, *, tier: Tier, reader: Reader, writer: Writer) -> None:
        self._database = database
        self._tier = tier
        self.secret = reader.secret
        self.leases: Leases = NoLeases()
        self._reader = reader
        self._writer = writer
        self._scanner = Scanner(database)
        self._uses: dict[int, int] = {}
        """How often entries were served, by id, since that was last written down."""
        self._num_uses = 0
        self._seen = b""
        """The pulse when the file was last looked at."""
        self._look_again_at_s = 0.0
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, memory_bytes: int, disk_bytes: int) -> "SqliteStore":
        """Open or make the store at `path`.

        `memory_bytes` bounds the memory tier; 0 for none. `disk_bytes` bounds the file with its
        log. StoreUnusable when the path cannot be used.
        """
        database = await asyncio.to_thread(open_database, path, disk_bytes=disk_bytes)
        tier = Tier(max_bytes=memory_bytes)
        try:
            reader = Reader(database.connect("reader"), tier)
            writer = Writer(database, disk_bytes=disk_bytes - database.wal_bytes)
        except sqlite3.Error as error:
            database.close()
            raise StoreUnusable(f"cannot use the store {path}: {error}") from error
        return cls(database, tier=tier, reader=reader, writer=writer)

    async def get(self, key: str, *, now: float, tags: Sequence[str] = ()) -> Lookup:
        """See `Store.get`. Never suspends."""
        self._catch_up()
        purges = self._reader.purges
        held = self._tier.get(key)
        if held is not None:
            change, entry, standing = held.change, held.entry, held.standing(purges)
        else:
            found = self._load(key)
            if found is None:
                return Lookup(snapshot=purges.snapshot)
            change, entry = found.change, found.entry
            standing = purges.standing(entry)
        lookup = judge(entry, standing, snapshot=purges.snapshot, now=now, tags=tags)
        if lookup.entry is not None:
            self._count_use(change)
            if held is not None:
                self._tier.touch(held)
            elif self._tier.fits(entry):
                self._tier.put(entry, change=change)
        return lookup

    async def examine(self, key: str, *, tags: Sequence[str] = ()) -> Examined:
        """See `Store.examine`. Never suspends."""
        self._catch_up()
        found = self._load(key)
        entry = None if found is None else found.entry
        return examine(self._reader.purges, entry, key=key, tags=tags)

    async def snapshot(self) -> Snapshot:
        """See `Store.snapshot`. Never suspends."""
        self._catch_up()
        return self._reader.purges.snapshot

    async def put(self, entry: Entry) -> Stored | NotStored:
        """See `Store.put`. Returns after the commit."""
        self._check_usable()
        uses = self._take_uses() if self._num_uses >= MANY_USES else {}

        def work(transaction: Transaction) -> Stored | NotStored:
            transaction.count_uses(uses)
            return transaction.put(entry)

        return await self._writer.run(work, size_bytes=entry.size_bytes())

    async def delete(self, key: str) -> bool:
        """See `Store.delete`."""
        self._check_usable()
        return await self._writer.run(lambda transaction: transaction.delete(key))

    async def purge(self, purge: Purge, *, now: float) -> Purged:
        """See `Store.purge`. Overtakes whatever else waits to be written."""
        if purge.dry_run:
            self._catch_up()
            purges = self._reader.purges
            matched = await self._scanner.count(purge, purges, now=now)
            return Purged(matched=matched, entries=0, sequence=purges.sequence)
        purged = await self._writer.run(
            lambda transaction: purge_now(transaction, purge, now=now), urgent=True
        )
        self._check_usable()  # a purge of a file that others left is no purge
        return purged

    async def scan(self, where: Filter, *, now: float, cursor: str | None, limit: int) -> Page:
        """See `Store.scan`."""
        self._catch_up()
        purges = self._reader.purges
        return await self._scanner.scan(where, purges, now=now, cursor=cursor, limit=limit)

    async def changes(self, cursor: int, *, limit: int) -> Changes:
        """See `Store.changes`."""
        self._check_usable()
        return await self._scanner.changes(cursor, limit=limit)

    async def tally(self, name: str, add: Mapping[str, int]) -> dict[str, int]:
        """See `Store.tally`. Only what adds waits for the writer."""
        self._check_usable()
        if add:
            return await self._writer.run(
                lambda transaction: add_to_tally(transaction.connection, name, add)
            )
        try:
            return self._reader.tally(name)
        except sqlite3.Error as error:
            raise self._database.fault(error) from error

    def vectors(self, *, identity: str, dimension: int) -> None:
        """See `Store.vectors`."""

    async def sweep(self, *, now: float) -> int:
        """See `Store.sweep`. In small steps, between which others write."""
        self._check_usable()
        uses = self._take_uses()
        await self._writer.run(lambda transaction: transaction.count_uses(uses))
        freed = await self._in_steps(lambda transaction: sweep_expired(transaction, now=now))
        freed += await self._in_steps(sweep_purged)
        freed += await self._in_steps(sweep_excess)
        await self._in_steps(shrink)
        forgetting = Forgetting(now=now)
        while not forgetting.done:
            forgetting = await self._writer.run(partial(forget_purges, begun=forgetting))
        await self._scanner.truncate_log()
        return freed

    async def scrub(self) -> bool:
        """See `Store.scrub`. What is freed is overwritten (`secure_delete`) in the log; that goes
        into the file here. A tier of another process lets go of it at its next lookup."""
        for _ in range(SCRUB_TRIES):
            if await self._scanner.truncate_log():
                return True
            await asyncio.sleep(SCRUB_PAUSE_S)
        return False

    async def stats(self) -> StoreStats:
        """See `Store.stats`."""
        self._catch_up()
        state = self._reader.state
        return StoreStats(
            entries=state.entries,
            memory_bytes=self._tier.used_bytes,
            disk_bytes=self._database.size_bytes(),
            sequence=state.sequence,
            evictions=state.evictions,
        )

    async def close(self) -> None:
        """See `Store.close`."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._scanner.close)
        self._reader.close()
        self._tier.clear()
        self._database.close()

    async def check_integrity(self) -> None:
        """AssertionError unless the file is sound and all parts agree with it."""
        self._catch_up()
        self._tier.check_integrity()
        for held in self._tier.oldest_first():
            found = self._reader.load(held.entry.key)
            assert found == Found(held.change, held.entry)
        await self._scanner.check_integrity()

    async def _in_steps(self, step: Callable[[Transaction], Step]) -> int:
        freed = 0
        while (done := await self._writer.run(step)).more:
            freed += done.freed
        return freed + done.freed

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreFault("the store is closed")
        self._database.check_in_place()

    def _catch_up(self) -> None:
        """Know all that any process has committed and acknowledged before this call.

        The pulse tells of everything that a store of ours commits. What else may happen to a file
        (another program writes to it, it is moved away) is looked for a few times a second.
        """
        token, instant_s = self._database_token(), time.monotonic()
        if token == self._seen and instant_s < self._look_again_at_s:
            return
        self._check_usable()
        try:
            self._reader.catch_up()
        except sqlite3.Error as error:
            raise self._database.fault(error) from error
        # Read before the file was: a commit in between has changed it again.
        self._seen = token
        self._look_again_at_s = instant_s + LOOK_EVERY_S

    def _database_token(self) -> bytes:
        if self._closed:
            raise StoreFault("the store is closed")
        return self._database.pulse.token()

    def _load(self, key: str) -> Found | None:
        try:
            return self._reader.load(key)
        except sqlite3.Error as error:
            raise self._database.fault(error) from error

    def _count_use(self, change: int) -> None:
        count = self._uses.get(change, 0)
        if count or len(self._uses) < MAX_USED:
            self._uses[change] = count + 1
            self._num_uses += 1

    def _take_uses(self) -> dict[int, int]:
        uses, self._uses, self._num_uses = self._uses, {}, 0
        return uses
