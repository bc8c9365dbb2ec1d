"""The one row of counters, and the marks of purges, as they stand in the file."""

import json
import sqlite3
from collections.abc import Iterable

import msgspec

from index.purges import PurgeTable
from index.store import Mark

_FIELDS = (
    "generation", "sequence", "floor", "change", "last_deletion", "forgotten_change", "entries",
    "evictions", "inflation",
)  # fmt: skip
_READ = f"SELECT {', '.join(_FIELDS)} FROM state"  # noqa: S608 - our own names
_WRITE = f"UPDATE state SET {', '.join(f'{name} = ?' for name in _FIELDS)}"  # noqa: S608 - ours


class State(msgspec.Struct):
    """The counters. Mutable: a write transaction counts on it, then writes it back."""

    generation: str
    sequence: int
    """S, the number of purges."""
    floor: int
    """Greatest S of a purge that was forgotten."""
    change: int
    """Number of the last change."""
    last_deletion: int
    """Number of the last change that was a deletion."""
    forgotten_change: int
    """The change feed is complete after this one."""
    entries: int
    evictions: int
    inflation: float
    """See `index.eviction`."""

    def table(self) -> PurgeTable:
        """An empty purge table with these counters."""
        return PurgeTable(generation=self.generation, sequence=self.sequence, floor=self.floor)


def read_state(connection: sqlite3.Connection) -> State:
    """The counters now."""
    return State(*connection.execute(_READ).fetchone())


def read_secret(connection: sqlite3.Connection) -> bytes:
    """The secret of the store, made with the file."""
    return bytes(connection.execute("SELECT secret FROM state").fetchone()[0])


def write_state(connection: sqlite3.Connection, state: State) -> None:
    """Inside a transaction."""
    connection.execute(_WRITE, msgspec.structs.astuple(state))


def read_marks(connection: sqlite3.Connection, *, after: int) -> dict[str, Mark]:
    """The marks of all purges after S = `after` that are not forgotten."""
    rows = connection.execute("SELECT tag, hard, soft FROM purge WHERE sequence > ?", (after,))
    return {tag: Mark(hard, soft) for tag, hard, soft in rows}


def read_marks_of(connection: sqlite3.Connection, tags: Iterable[str]) -> dict[str, Mark]:
    """The marks of these tags."""
    rows = connection.execute(
        "SELECT tag, hard, soft FROM purge WHERE tag IN (SELECT value FROM json_each(?))",
        (json.dumps(list(tags)),),
    )
    return {tag: Mark(hard, soft) for tag, hard, soft in rows}
