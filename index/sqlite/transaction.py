"""One write transaction: puts and deletes entries, counts its changes, keeps the byte bound."""

import sqlite3
from collections.abc import Iterable

import msgspec

from index import record
from index.entry import Entry
from index.eviction import MAX_USES, rank, worth
from index.sqlite.database import PAGE_BYTES
from index.sqlite.state import State, read_marks_of, read_state, write_state
from index.store import ALL, NotStored, Stored
from index.tags import key_tag
from index.tier import MAX_SHARE

MAX_DELETIONS = 100_000
"""The change feed remembers the deletions among that many last changes."""
MAX_EVICTED = 64
"""Entries evicted for one put at most, so that a lowered bound does not stop the writer."""
ROW_BYTES = 512
"""What an entry takes in the file beside its record, prompt and tags: rows, indexes, slack."""


class Row(msgspec.Struct, frozen=True):
    """What is needed to free an entry."""

    id: int
    key: str
    tags: str
    size_bytes: int
    rank: float


class Transaction:
    """Begun and ended by the writer. `disk_bytes` is the bound on the pages in use."""

    def __init__(self, connection: sqlite3.Connection, *, disk_bytes: int) -> None:
        self.connection = connection
        self.state: State = read_state(connection)
        self._disk_bytes = disk_bytes
        self._added_bytes = 0
        """About what this transaction has put in and taken out, on top of `_used_before`."""
        self._used_before: int | None = None

    def finish(self) -> None:
        """Write the counters; the last thing before COMMIT."""
        forgotten = self.state.change - MAX_DELETIONS
        if forgotten > self.state.forgotten_change:
            self.connection.execute("DELETE FROM deletion WHERE change <= ?", (forgotten,))
            self.state.forgotten_change = forgotten
        write_state(self.connection, self.state)

    def put(self, entry: Entry) -> Stored | NotStored:
        """See `Store.put`."""
        refused = self._refusal(entry)
        if refused is not None:
            return refused
        stored = record.encode(entry)
        size_bytes = len(stored) + len(entry.prompt) + 2 * sum(map(len, entry.tags)) + ROW_BYTES
        if size_bytes * MAX_SHARE > self._disk_bytes:
            return NotStored(reason="too_large")
        uses = self._replace(entry.key)
        evicted = self.evict(self.excess_bytes() + size_bytes, limit=MAX_EVICTED)
        self._insert(entry, stored, size_bytes=size_bytes, uses=uses)
        return Stored(evicted=evicted)

    def delete(self, key: str) -> bool:
        """See `Store.delete`."""
        rows = self.rows("WHERE key = ?", (key,))
        self.free(rows)
        return bool(rows)

    def rows(self, where: str, parameters: tuple[object, ...]) -> list[Row]:
        """The entries that a clause of ours selects."""
        found = self.connection.execute(
            f"SELECT id, key, tags, size_bytes, rank FROM entry {where}",  # noqa: S608 - ours
            parameters,
        )
        return [Row(*columns) for columns in found]

    def free(self, rows: Iterable[Row]) -> None:
        """Delete entries, and tell the change feed."""
        for row in rows:
            self._erase(row)
            self.state.change += 1
            self.state.last_deletion = self.state.change
            self.connection.execute(
                "INSERT INTO deletion (change, key) VALUES (?, ?)", (self.state.change, row.key)
            )

    def evict(self, excess_bytes: int, *, limit: int) -> int:
        """Free the entries that are worth least until `excess_bytes` are free; how many."""
        if excess_bytes <= 0:
            return 0
        victims = []
        for row in self.rows("ORDER BY rank LIMIT ?", (limit,)):
            victims.append(row)
            excess_bytes -= row.size_bytes
            self.state.inflation = max(self.state.inflation, row.rank)
            if excess_bytes <= 0:
                break
        self.free(victims)
        self.state.evictions += len(victims)
        return len(victims)

    def excess_bytes(self) -> int:
        """How far the pages in use are above the bound; negative below it.

        They are counted once, since that costs as much as a put; the rest of the transaction is
        estimated, and the next one counts anew.
        """
        if self._used_before is None:
            used_pages = self._pragma("page_count") - self.free_pages()
            self._used_before = used_pages * PAGE_BYTES - self._added_bytes
        return self._used_before + self._added_bytes - self._disk_bytes

    def file_excess_bytes(self) -> int:
        """The same as `excess_bytes` with the pages that are free, but still in the file."""
        return self._pragma("page_count") * PAGE_BYTES - self._disk_bytes

    def free_pages(self) -> int:
        """Pages of the file that hold nothing; used again before the file grows."""
        return self._pragma("freelist_count")

    def count_uses(self, uses: dict[int, int]) -> None:
        """Raise the ranks of entries that were served; by id."""
        self.connection.executemany(
            "UPDATE entry SET uses = uses + ?1, rank = ?2 + min(uses + ?1, ?3) * worth "
            "WHERE id = ?4",
            [(count, self.state.inflation, MAX_USES, id_) for id_, count in uses.items()],
        )

    def _refusal(self, entry: Entry) -> NotStored | None:
        table = self.state.table()
        if entry.snapshot != table.snapshot:
            table.marks = read_marks_of(self.connection, (*entry.tags, key_tag(entry.key), ALL))
        admitted = table.admits(entry)
        return None if admitted == "ok" else NotStored(reason=admitted)

    def _replace(self, key: str) -> int:
        """Make room for a new entry of this key; how often the old one was used."""
        rows = self.rows("WHERE key = ?", (key,))
        if not rows:
            return 1
        (uses,) = self.connection.execute(
            "SELECT uses FROM entry WHERE id = ?", (rows[0].id,)
        ).fetchone()
        self._erase(rows[0])
        return int(uses)

    def _insert(self, entry: Entry, stored: bytes, *, size_bytes: int, uses: int) -> None:
        self.state.change += 1
        self.state.entries += 1
        self._added_bytes += size_bytes
        id_ = self.state.change
        value = worth(entry, size_bytes=size_bytes)
        first_rank = rank(inflation=self.state.inflation, uses=uses, worth=value)
        self.connection.execute(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                id_, entry.key, entry.snapshot.sequence, entry.keep_until, size_bytes, value, uses,
                first_rank, entry.tenant, entry.model, entry.scope, ",".join(entry.tags),
            ),
        )  # fmt: skip
        self.connection.execute("INSERT INTO body VALUES (?, ?, ?)", (id_, entry.prompt, stored))
        self.connection.executemany(
            "INSERT INTO entry_tag VALUES (?, ?)", [(tag, id_) for tag in set(entry.tags)]
        )

    def _erase(self, row: Row) -> None:
        self.state.entries -= 1
        self._added_bytes -= row.size_bytes
        self.connection.execute("DELETE FROM entry WHERE id = ?", (row.id,))
        self.connection.execute("DELETE FROM body WHERE id = ?", (row.id,))
        if row.tags:
            self.connection.executemany(
                "DELETE FROM entry_tag WHERE tag = ? AND entry_id = ?",
                [(tag, row.id) for tag in row.tags.split(",")],
            )

    def _pragma(self, name: str) -> int:
        return int(self.connection.execute(f"PRAGMA {name}").fetchone()[0])
