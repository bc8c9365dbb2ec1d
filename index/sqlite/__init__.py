"""The store in one SQLite file, shared by all workers of a machine, with a memory tier in front."""

from index.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
