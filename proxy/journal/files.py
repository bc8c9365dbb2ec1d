"""The files of the request log. All of it blocks: not for an event loop.

    requests.jsonl            what is written to
    requests.jsonl.1          older lines; goes when the first one takes its place
    requests.jsonl.lock       held by who moves files
    requests.jsonl.erasing    on its way out; left behind only by a crash, and then still read

Writers open the file anew for every handful of lines, so that moving it away is enough.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LAST_WRITES_S = 0.5
"""For a writer that has opened the file just before it was moved."""
_BLOCK_BYTES = 2**20


class Files:
    """The request log at one path. `max_bytes`: of both files together."""

    def __init__(self, path: str, *, max_bytes: int) -> None:
        self._path = Path(path)
        self._older = Path(f"{path}.1")
        self._erasing = Path(f"{path}.erasing")
        self._max_bytes = max_bytes

    def rotate(self) -> bool:
        """Begin a new file where this one has taken its half; whether it was so. Raises OSError."""
        if not self._is_full():
            return False
        with self._alone():
            if not self._is_full():
                return False  # another process was quicker
            self._path.replace(self._older)
            return True

    def lines(self) -> Iterator[bytes]:
        """All of them, oldest first, without their ends; files that are not there are empty."""
        for path in (self._older, self._erasing, self._path):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
                for line in lines:
                    yield line.rstrip(b"\n")

    def lines_backwards(self) -> Iterator[bytes]:
        """Newest first."""
        for path in (self._path, self._erasing, self._older):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                yield from _backwards(file.fileno(), path.stat().st_size)

    def rewrite(self, goes: Callable[[bytes], bool]) -> int:
        """Leave out the lines that `goes` names, and overwrite what they stood in; how many went.
        Lines that come meanwhile are in the new file and stay. Raises OSError."""
        with self._alone():
            if self._path.exists() and not self._erasing.exists():
                self._path.replace(self._erasing)
                time.sleep(_LAST_WRITES_S)
            fresh = Path(f"{self._path}.fresh")
            num_gone = 0
            with _owners_only(fresh) as kept:
                for path in (self._older, self._erasing):
                    num_gone += _copy(path, kept, goes)
            _put_in_place(fresh, self._older)
            _destroy(self._erasing)
            return num_gone

    def _is_full(self) -> bool:
        try:
            return self._path.stat().st_size * 2 >= self._max_bytes
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


@contextlib.contextmanager
def _owners_only(path: Path) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o640)
    try:
        yield descriptor
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy(path: Path, kept: int, goes: Callable[[bytes], bool]) -> int:
    num_gone = 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            if goes(line.rstrip(b"\n")):
                num_gone += 1
            else:
                _write(kept, line)
    return num_gone


def _write(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])


def _put_in_place(fresh: Path, path: Path) -> None:
    """At every moment one of the two is whole; then what stood there is overwritten."""
    with contextlib.ExitStack() as stack:
        old = None
        with contextlib.suppress(FileNotFoundError):
            old = stack.enter_context(path.open("r+b", buffering=0))
        fresh.replace(path)
        if old is not None:
            _overwrite(old.fileno())


def _destroy(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        with path.open("r+b", buffering=0) as file:
            _overwrite(file.fileno())
        path.unlink()


def _overwrite(descriptor: int) -> None:
    """Where the file system writes in place. One that copies on write keeps the old in snapshots
    and on the disk until it needs the room."""
    size, at = os.fstat(descriptor).st_size, 0
    while at < size:
        at += os.pwrite(descriptor, b"\0" * min(size - at, _BLOCK_BYTES), at)
    os.fsync(descriptor)


def _backwards(descriptor: int, end: int) -> Iterator[bytes]:
    rest = b""
    while end > 0:
        start = max(end - _BLOCK_BYTES, 0)
        block = os.pread(descriptor, end - start, start) + rest
        rest, *lines = block.split(b"\n")
        yield from reversed(lines)
        end = start
    yield rest
