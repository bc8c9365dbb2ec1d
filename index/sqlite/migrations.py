"""The schema of the file, as numbered steps. `user_version` is the number of steps taken.

    state      one row: the counters of the store
    entry      what is needed to find, judge, count, sweep and evict an entry; small rows
    body       the entry itself (`index.record`) and its prompt; large rows, read only on a hit
    entry_tag  the explicit and implicit tags of each entry
    purge      when each tag was last purged
    deletion   the keys freed lately, for the change feed
    tally      counters that all processes share

An entry's id is the number of the change that put it there; deletions take numbers from the same
counter. All entries under a tag that were put before a purge have ids up to `state.change` of that
moment, and a later put of something older than the purge is refused: so `purge.hard_change` bounds
what a sweep has to free.

A released step is never edited: what changes is a new step.
"""

import sqlite3

from index.errors import StoreUnusable

APPLICATION_ID = 0x524A4E44
"""Marks the file as ours (`PRAGMA application_id`)."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        """
        CREATE TABLE state (
            id INTEGER PRIMARY KEY CHECK (id = 1),
            generation TEXT NOT NULL,
            secret BLOB NOT NULL,
            sequence INTEGER NOT NULL DEFAULT 0,
            floor INTEGER NOT NULL DEFAULT 0,
            change INTEGER NOT NULL DEFAULT 0,
            last_deletion INTEGER NOT NULL DEFAULT 0,
            forgotten_change INTEGER NOT NULL DEFAULT 0,
            entries INTEGER NOT NULL DEFAULT 0,
            evictions INTEGER NOT NULL DEFAULT 0,
            inflation REAL NOT NULL DEFAULT 0
        )
        """,
        """
        INSERT INTO state (id, generation, secret)
        VALUES (1, lower(hex(randomblob(16))), randomblob(32))
        """,
        """
        CREATE TABLE entry (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            sequence INTEGER NOT NULL,
            keep_until REAL NOT NULL,
            size_bytes INTEGER NOT NULL,
            worth REAL NOT NULL,
            uses INTEGER NOT NULL,
            rank REAL NOT NULL,
            tenant TEXT NOT NULL,
            model TEXT NOT NULL,
            scope TEXT NOT NULL,
            tags TEXT NOT NULL -- joined by commas, which no tag holds
        )
        """,
        "CREATE INDEX entry_keep_until ON entry (keep_until)",
        "CREATE INDEX entry_rank ON entry (rank)",
        "CREATE TABLE body (id INTEGER PRIMARY KEY, prompt TEXT NOT NULL, record BLOB NOT NULL)",
        """
        CREATE TABLE entry_tag (
            tag TEXT NOT NULL, entry_id INTEGER NOT NULL, PRIMARY KEY (tag, entry_id)
        ) WITHOUT ROWID
        """,
        """
        CREATE TABLE purge (
            tag TEXT PRIMARY KEY,
            sequence INTEGER NOT NULL,
            hard INTEGER NOT NULL,
            hard_change INTEGER NOT NULL,
            soft INTEGER NOT NULL,
            soft_change INTEGER NOT NULL,
            at REAL NOT NULL,
            swept INTEGER NOT NULL
        ) WITHOUT ROWID
        """,
        "CREATE INDEX purge_sequence ON purge (sequence)",
        "CREATE INDEX purge_unswept ON purge (sequence) WHERE swept = 0",
        "CREATE TABLE deletion (change INTEGER PRIMARY KEY, key TEXT NOT NULL)",
    ),
    (
        """
        CREATE TABLE tally (
            name TEXT NOT NULL,
            field TEXT NOT NULL,
            value INTEGER NOT NULL,
            PRIMARY KEY (name, field)
        ) WITHOUT ROWID
        """,
    ),
)


def check_ours(connection: sqlite3.Connection, *, path: str) -> None:
    """StoreUnusable for a file of a newer version, or one that is not ours. Only reads."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreUnusable(f"{path} is a database of another program; set another `store.path`")
    version = _pragma(connection, "user_version")
    if version > len(MIGRATIONS):
        raise StoreUnusable(
            f"{path} was written by a newer Rejoinder (format {version}, this one knows up to "
            f"{len(MIGRATIONS)}); upgrade, or set another `store.path`"
        )


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file to the newest version, each step whole or not at all."""
    version = -1
    while version < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = _pragma(connection, "user_version")
            if version < len(MIGRATIONS):
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        finally:
            connection.rollback()


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
