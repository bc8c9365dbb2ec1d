"""The file: finding it usable, moving a corrupt one aside, opening connections to it.

    x.db, x.db-wal, x.db-shm    SQLite's
    x.db.pulse                  tells all processes that something was committed
    x.db.lock                   locked (shared) by each process that has the store open
    x.db.suspect                left by a process that met damage while serving: the next start
                                checks the whole file

A corrupt file is moved aside only by a process that has the lock alone. Otherwise two processes
would go on with two files, and a purge in one would not reach the other.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Literal

from index.errors import StoreFault, StoreUnusable
from index.sqlite.migrations import check_ours, migrate
from index.sqlite.pulse import Pulse

log = logging.getLogger("rejoinder.store")

TABLES = ("state", "entry", "body", "entry_tag", "purge", "deletion")
OPEN_DEADLINE_S = 15.0
"""For other processes that open, migrate or recover the same file at this moment."""
ALONE_DEADLINE_S = 2.0
"""For a corrupt file: others that only look at it, too, are soon gone; those that serve are not."""
RETRY_S = 0.02
PAGE_BYTES = 4096
MAX_WAL_BYTES = 8 * 2**20
WAL_SHARE = 32
"""Part of the bound on disk that is left to the write-ahead log. Half full, it goes into the file;
the other half is for what is committed meanwhile."""
CORRUPT = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
BUSY = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED))

Role = Literal["reader", "scanner", "writer"]
_BUSY_MS = {"reader": 50, "scanner": 2_000, "writer": 10_000}
"""The reader works on the event loop, which must not stand still: it gives up soon, a miss."""


class Database:
    """An open store file. `wal_bytes`: how long its log may get."""

    def __init__(self, path: Path, lock: int, *, wal_bytes: int) -> None:
        self.path = path
        self.wal_bytes = wal_bytes
        self._path = str(path)
        self._lock = lock
        self._inode = path.stat().st_ino
        self.pulse = Pulse(path)

    def connect(self, role: Role) -> sqlite3.Connection:
        """A connection in autocommit mode; `reader` and `scanner` cannot write."""
        connection = _connect(self._path, busy_ms=_BUSY_MS[role])
        if role == "writer":
            connection.execute("PRAGMA secure_delete = ON")
            pages = self.wal_bytes // 2 // PAGE_BYTES
            connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            connection.execute(f"PRAGMA journal_size_limit = {self.wal_bytes}")
        else:
            connection.execute("PRAGMA query_only = ON")
        return connection

    def check_in_place(self) -> None:
        """StoreFault when the file was moved or deleted under us: others may use another by now."""
        try:
            inode = os.stat(self._path).st_ino  # noqa: PTH116 - Path.stat costs twice as much here
        except OSError:
            inode = None
        if inode != self._inode:
            raise StoreFault(f"{self._path} was moved or deleted while in use; restart to go on")

    def fault(self, error: sqlite3.Error) -> StoreFault:
        """The error as ours. Damage is said loudly and noted for the next start."""
        if _code(error) in CORRUPT:
            log.error("store %s is damaged (%s); it is checked at the next start", self.path, error)
            with contextlib.suppress(OSError):
                _suspect(self.path).touch()
        return StoreFault(f"{self.path}: {error}")

    def size_bytes(self) -> int:
        """The file and its log."""
        sizes = 0
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                sizes += Path(f"{self.path}{suffix}").stat().st_size
        return sizes

    def close(self) -> None:
        """Give up the lock; the connections are closed by those who opened them."""
        self.pulse.close()
        os.close(self._lock)


def open_database(path: Path, *, disk_bytes: int) -> Database:
    """Open the store at `path`, made or migrated if need be. Blocks.

    A corrupt file is renamed to `<name>.corrupt-<time>` and a new one started. StoreUnusable, with
    the path and what to do, when there is no way to use it.
    """
    wal_bytes = max(64 * PAGE_BYTES, min(MAX_WAL_BYTES, disk_bytes // WAL_SHARE))
    lock = _create(path)
    try:
        _make_usable(path, lock)
        return Database(path, lock, wal_bytes=wal_bytes)
    except OSError as error:
        os.close(lock)
        raise StoreUnusable(f"cannot use the store {path}: {error.strerror}") from error
    except BaseException:
        os.close(lock)
        raise


def _create(path: Path) -> int:
    """Make the file, readable for its owner only, and lock it (shared)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreUnusable(
            f"cannot write the store {path}: {error.strerror}; make it writable, or set another "
            "`store.path`"
        ) from error
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def _make_usable(path: Path, lock: int) -> None:
    begun = time.monotonic()
    alone = False
    while True:
        try:
            _prepare(path, alone=alone)
            fcntl.flock(lock, fcntl.LOCK_SH)
            return
        except sqlite3.Error as error:
            waited_s = time.monotonic() - begun
            if _code(error) in CORRUPT and alone:
                _move_aside(path, error)
            elif _code(error) in CORRUPT and waited_s < ALONE_DEADLINE_S:
                alone = _lock_alone(lock)
            elif _code(error) not in BUSY or waited_s > OPEN_DEADLINE_S:
                raise StoreUnusable(f"cannot use the store {path}: {_cause(error)}") from error
        time.sleep(RETRY_S)


def _prepare(path: Path, *, alone: bool) -> None:
    """Migrate, and look at every table. A damaged file raises one of the `CORRUPT` errors."""
    connection = _connect(str(path), busy_ms=1_000)
    try:
        check_ours(connection, path=str(path))
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnusable(f"{path}: this file system cannot hold a write-ahead log")
        migrate(connection)
        for table in TABLES:
            connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()  # noqa: S608 - ours
        _check_suspect(connection, path, alone=alone)
    finally:
        connection.close()


def _check_suspect(connection: sqlite3.Connection, path: Path, *, alone: bool) -> None:
    if not _suspect(path).exists():
        return
    log.warning("store %s is suspected of damage: checking all of it", path)
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        error = sqlite3.DatabaseError(found)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    if alone:
        _suspect(path).unlink(missing_ok=True)


def _move_aside(path: Path, error: sqlite3.Error) -> None:
    aside = f"{path}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    log.error(
        "store %s is corrupt (%s): moved to %s, and started anew with nothing in it",
        path, error, aside,
    )  # fmt: skip
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    _suspect(path).unlink(missing_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _lock_alone(lock: int) -> bool:
    """Try to be the only one. A failed try loses the shared lock, so it is taken again."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(lock, fcntl.LOCK_SH)
        return False
    return True


def _connect(path: str, *, busy_ms: int) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=busy_ms / 1000, isolation_level=None, check_same_thread=False
    )


def _cause(error: sqlite3.Error) -> str:
    if _code(error) in CORRUPT:
        return f"it is corrupt ({error}), and other processes use it; stop them first"
    return str(error)


def _suspect(path: Path) -> Path:
    return path.with_name(path.name + ".suspect")


def _code(error: sqlite3.Error) -> int:
    """The primary result code; extended codes hold it in their low byte."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
