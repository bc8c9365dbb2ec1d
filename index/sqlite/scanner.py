"""Long reads, on a thread and a connection of their own: pages of entries, the feed, dry runs."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from index import record
from index.entry import Entry
from index.errors import StoreFault
from index.nearest import feed
from index.nearest.feed import Cursor, Deletion, Put
from index.purges import PurgeTable
from index.sqlite.database import Database
from index.sqlite.purging import count_live
from index.sqlite.state import read_state
from index.store import Changes, Filter, Page, Purge, place_of

Result = TypeVar("Result")

_PUTS = """
    SELECT id, record FROM entry JOIN body USING (id) WHERE id > ? AND id <= ? ORDER BY id LIMIT ?
"""


class Scanner:
    """The purge tables that are handed in must be in step with the file at the call."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection = database.connect("scanner")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rejoinder-scanner")

    async def count(self, purge: Purge, table: PurgeTable, *, now: float) -> int:
        """Live entries that a purge would cover."""
        return await self._run(lambda: count_live(self._connection, purge, table, now=now))

    async def scan(
        self, where: Filter, table: PurgeTable, *, now: float, cursor: str | None, limit: int
    ) -> Page:
        """See `Store.scan`."""
        return await self._run(lambda: self._scan(where, table, now, cursor, limit))

    async def changes(self, cursor: int, *, limit: int) -> Changes:
        """See `Store.changes`."""
        return await self._run(lambda: self._changes(cursor, limit))

    async def truncate_log(self) -> bool:
        """Move the log into the file, so that what was freed is not left readable in it.

        Waits for nobody: False if someone reads or writes at this moment; the next sweep does it.
        """
        return await self._run(self._truncate_log)

    async def check_integrity(self) -> None:
        """AssertionError unless the file is sound and its tables agree."""
        await self._run(self._check_integrity)

    def close(self) -> None:
        """Wait for what runs, and close the connection. Blocks."""
        self._thread.shutdown()
        self._connection.close()

    async def _run(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            raise self._database.fault(error) from error
        except RuntimeError as error:  # what an executor that was shut down raises
            raise StoreFault("the store is closed") from error

    def _scan(
        self, where: Filter, table: PurgeTable, now: float, cursor: str | None, limit: int
    ) -> Page:
        page: list[Entry] = []
        last = 0
        with contextlib.closing(self._matching(where, now, cursor)) as rows:
            for put in _puts(rows):
                if put.entry is None or table.standing(put.entry) == "purged":
                    continue
                if len(page) == limit:
                    return Page(entries=tuple(page), cursor=str(last))
                page.append(put.entry)
                last = put.change
        return Page(entries=tuple(page), cursor=None)

    def _matching(self, where: Filter, now: float, cursor: str | None) -> sqlite3.Cursor:
        clauses = ["keep_until >= ?"]
        values: list[object] = [now]
        for clause, value in (
            ("id < ?", place_of(cursor)),
            ("model = ?", where.model),
            ("tenant = ?", where.tenant),
            ("scope = ?", where.scope),
            ("instr(prompt, ?) > 0", where.text),
            ("id IN (SELECT entry_id FROM entry_tag WHERE tag = ?)", where.tag),
        ):
            if value is not None:
                clauses.append(clause)
                values.append(value)
        return self._connection.execute(
            "SELECT id, record FROM entry JOIN body USING (id) "  # noqa: S608 - our own clauses
            f"WHERE {' AND '.join(clauses)} ORDER BY id DESC",
            values,
        )

    def _changes(self, cursor: int, limit: int) -> Changes:
        self._connection.execute("BEGIN")
        try:
            state = read_state(self._connection)
            at = Cursor.parse(cursor, last=state.change)
            if at.until:
                rows = self._connection.execute(_PUTS, (at.after, at.until, limit))
                return feed.first_page(at, list(_puts(rows)), limit=limit)
            if not state.forgotten_change <= at.after <= state.change:
                return feed.reset()
            rows = self._connection.execute(_PUTS, (at.after, state.change, limit))
            deletions = self._connection.execute(
                "SELECT change, key FROM deletion WHERE change > ? ORDER BY change LIMIT ?",
                (at.after, limit),
            )
            gone = [Deletion(*columns) for columns in deletions]
            return feed.next_page(at, list(_puts(rows)), gone, limit=limit)
        finally:
            self._connection.rollback()  # ends the read transaction, whatever happened

    def _truncate_log(self) -> bool:
        (busy_ms,) = self._connection.execute("PRAGMA busy_timeout").fetchone()
        self._connection.execute("PRAGMA busy_timeout = 0")
        (was_busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        self._connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
        return not was_busy

    def _check_integrity(self) -> None:
        execute = self._connection.execute
        assert execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        state = read_state(self._connection)
        rows = execute("SELECT id, tags FROM entry").fetchall()
        ids = [id_ for id_, _ in rows]
        assert len(ids) == state.entries
        assert sorted(ids) == [id_ for (id_,) in execute("SELECT id FROM body ORDER BY id")]
        tagged = [(tag, id_) for id_, tags in rows if tags for tag in tags.split(",")]
        assert sorted(tagged) == sorted(execute("SELECT tag, entry_id FROM entry_tag"))
        deleted = [change for (change,) in execute("SELECT change FROM deletion")]
        assert not set(ids) & set(deleted)
        assert max([*ids, *deleted], default=0) <= state.change
        (last,) = execute("SELECT coalesce(max(sequence), 0) FROM purge").fetchone()
        assert last <= state.sequence


def _puts(rows: sqlite3.Cursor) -> Iterator[Put]:
    return (Put(id_, record.decode(stored)) for id_, stored in rows)
