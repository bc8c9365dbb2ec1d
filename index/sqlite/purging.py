"""Purges in the file: one row for each tag, however much it covers; and what they cover."""

import json
import sqlite3
from collections.abc import Iterator

import msgspec

from index.entry import Snapshot
from index.purges import PurgeTable, tags_of
from index.sqlite.state import read_marks_of
from index.sqlite.transaction import Transaction
from index.store import ALL, Purge, Purged
from index.tags import key_tag

MAX_COUNTED = 5_000
"""A real purge that covers more says None; counting would take longer than purging."""
MAX_FREED = 64
"""A hard purge of no more entries than that frees them at once; a sweep frees the rest."""

_MARK_HARD = """
    INSERT INTO purge VALUES (?1, ?2, ?2, ?3, 0, 0, ?4, 0)
    ON CONFLICT (tag) DO UPDATE SET sequence = ?2, hard = ?2, hard_change = ?3, at = ?4, swept = 0
"""
_MARK_SOFT = """
    INSERT INTO purge VALUES (?1, ?2, 0, 0, ?2, ?3, ?4, 1)
    ON CONFLICT (tag) DO UPDATE SET sequence = ?2, soft = ?2, soft_change = ?3, at = ?4
"""
_BY_TAG = "SELECT entry_id AS id FROM entry_tag WHERE tag IN (SELECT value FROM json_each(?1))"
_BY_KEY = "SELECT id FROM entry WHERE key IN (SELECT value FROM json_each(?2))"
_ALL = "SELECT id FROM entry WHERE ?1 <> '' AND ?2 <> ''"


class Covered(msgspec.Struct, frozen=True):
    """An entry that a purge covers, with what tells whether an earlier purge did."""

    id: int
    key: str
    tags: str
    sequence: int

    def tag_list(self) -> tuple[str, ...]:
        """Its tags without the two that go without saying."""
        return tuple(self.tags.split(",")) if self.tags else ()


def purge_now(transaction: Transaction, purge: Purge, *, now: float) -> Purged:
    """Set the marks. Counts what is covered, and frees it, only where that is little."""
    covered = _few_live(transaction, purge, now=now)
    state = transaction.state
    state.sequence += 1
    transaction.connection.executemany(
        _MARK_SOFT if purge.soft else _MARK_HARD,
        [(tag, state.sequence, state.change, now) for tag in tags_of(purge)],
    )
    if covered is None:
        return Purged(matched=None, entries=0, sequence=state.sequence)
    freed = covered if not purge.soft and len(covered) <= MAX_FREED else []
    for entry in freed:
        transaction.delete(entry.key)
    return Purged(matched=len(covered), entries=len(freed), sequence=state.sequence)


def count_live(
    connection: sqlite3.Connection, purge: Purge, table: PurgeTable, *, now: float
) -> int:
    """How many live entries a purge would cover. Exact, and as slow as there are entries."""
    return sum(_stands(entry, table) for entry in _covered(connection, purge, now=now))


def _few_live(transaction: Transaction, purge: Purge, *, now: float) -> list[Covered] | None:
    """The live entries that are covered; None when more than `MAX_COUNTED` have to be looked at."""
    connection = transaction.connection
    (num_covered,) = connection.execute(
        f"SELECT count(*) FROM ({_cover(purge)} LIMIT {MAX_COUNTED + 1})",  # noqa: S608 - ours
        _parameters(purge),
    ).fetchone()
    if num_covered > MAX_COUNTED:
        return None
    covered = list(_covered(connection, purge, now=now))
    table = transaction.state.table()
    table.marks = read_marks_of(connection, _all_tags(covered))
    return [entry for entry in covered if _stands(entry, table)]


def _covered(connection: sqlite3.Connection, purge: Purge, *, now: float) -> Iterator[Covered]:
    rows = connection.execute(
        "SELECT id, key, tags, sequence FROM entry "  # noqa: S608 - ours
        f"WHERE keep_until >= ?3 AND id IN ({_cover(purge)})",
        (*_parameters(purge), now),
    )
    return (Covered(*columns) for columns in rows)


def _cover(purge: Purge) -> str:
    """A query for the ids; UNION ALL, since UNION would collect them all before a LIMIT."""
    return _ALL if ALL in tags_of(purge) else f"{_BY_TAG} UNION ALL {_BY_KEY}"


def _parameters(purge: Purge) -> tuple[str, str]:
    return json.dumps(tags_of(purge)), json.dumps(purge.keys)


def _stands(entry: Covered, table: PurgeTable) -> bool:
    seen = Snapshot(generation=table.snapshot.generation, sequence=entry.sequence)
    return table.standing_of(seen, key=entry.key, tags=entry.tag_list()) != "purged"


def _all_tags(covered: list[Covered]) -> set[str]:
    tags = {ALL}
    for entry in covered:
        tags.add(key_tag(entry.key))
        tags.update(entry.tag_list())
    return tags
