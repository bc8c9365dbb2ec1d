"""Where the states of meters live: in this process, or in a file that all workers share.

A state is the time when a meter will be empty (`proxy.tenancy.ratelimit`); one that is past says
nothing, and may be forgotten.
"""

import contextlib
import fcntl
import hashlib
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_SLOT = struct.Struct("<Qd")
_NUM_SLOTS = 16384
_NUM_PROBES = 32
_FORGET_EVERY = 1024


class Meters(Protocol):
    """States by name; unknown ones are 0."""

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Nobody else changes anything within. Short: every worker waits for it."""
        ...

    def get(self, name: str, *, now: float) -> float:
        """When it will be empty, or something not after `now`."""
        ...

    def put(self, name: str, empty_at: float, *, now: float) -> None:
        """Set it."""
        ...


class OwnMeters:
    """Of one process."""

    def __init__(self) -> None:
        self._empty_at: dict[str, float] = {}
        self._num_put = 0

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One thread works with them."""
        yield

    def get(self, name: str, *, now: float) -> float:
        return self._empty_at.get(name, now)

    def put(self, name: str, empty_at: float, *, now: float) -> None:
        self._empty_at[name] = empty_at
        self._num_put += 1
        if self._num_put % _FORGET_EVERY == 0:
            self._empty_at = {name: at for name, at in self._empty_at.items() if at > now}


class SharedMeters:
    """A hash table in a file that every worker has mapped. Names are kept as 64 bits of a hash.

    It has room for 16,384 meters that are not empty. When a name finds no slot the emptiest of its
    neighbours gives way: somebody is let through a little early.
    """

    def __init__(self, path: Path) -> None:
        """Opens the file, or makes it."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, _NUM_SLOTS * _SLOT.size)
        self._table = mmap.mmap(self._file, _NUM_SLOTS * _SLOT.size)

    def close(self) -> None:
        """Idempotent."""
        if not self._table.closed:
            self._table.close()
            os.close(self._file)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Held for microseconds, and given back by the system when a worker dies."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def get(self, name: str, *, now: float) -> float:
        mark = _mark(name)
        for offset in _offsets(mark):
            found, empty_at = _SLOT.unpack_from(self._table, offset)
            if found == mark:
                return float(empty_at)
        return now

    def put(self, name: str, empty_at: float, *, now: float) -> None:
        mark = _mark(name)
        slots = [(offset, *_SLOT.unpack_from(self._table, offset)) for offset in _offsets(mark)]
        own = [offset for offset, found, _ in slots if found == mark]
        offset = own[0] if own else min(slots, key=lambda slot: max(slot[2], now))[0]
        _SLOT.pack_into(self._table, offset, mark, empty_at)


def _mark(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def _offsets(mark: int) -> Iterator[int]:
    return ((mark + step) % _NUM_SLOTS * _SLOT.size for step in range(_NUM_PROBES))
