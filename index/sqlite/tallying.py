"""Counters by name and field, which all processes share."""

import sqlite3
from collections.abc import Mapping


def read_tally(connection: sqlite3.Connection, name: str) -> dict[str, int]:
    """All counters of a name."""
    return dict(connection.execute("SELECT field, value FROM tally WHERE name = ?", (name,)))


def add_to_tally(
    connection: sqlite3.Connection, name: str, add: Mapping[str, int]
) -> dict[str, int]:
    """Inside a transaction: add, then as `read_tally`."""
    connection.executemany(
        "INSERT INTO tally VALUES (?1, ?2, ?3) "
        "ON CONFLICT (name, field) DO UPDATE SET value = value + ?3",
        [(name, field, number) for field, number in add.items()],
    )
    connection.execute("DELETE FROM tally WHERE name = ? AND value <= 0", (name,))
    return read_tally(connection, name)
