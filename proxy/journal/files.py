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

from proxy.journal.backwards import lines_backwards

_LAST_WRITES_S = 0.5
"""For a writer that has opened the file just before it was moved."""
_BLOCK_BYTES = 2**20

Redaction = Callable[[bytes], bytes | None]
"""From a line to what is left of it, no longer than it was; None: nothing."""


class Files:
    """The request log at one path. `max_bytes`: of both files together."""

    def __init__(self, path: str, *, max_bytes: int) -> None:
        self._path = Path(path)
        self._older = Path(f"{path}.1")
        self._erasing = Path(f"{path}.erasing")
        self._fresh = Path(f"{path}.fresh")
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
            yield from lines_backwards(path)

    def rewrite(self, left: Redaction) -> int:
        """Leave of each line what `left` says, and overwrite what stood there; how many went.
        Lines that come meanwhile are in the new file and stay. Where there is no room for a copy,
        they are blanked where they stand. Raises OSError."""
        with self._alone():
            try:
                return self._fold_all(left)
            except OSError:
                self._fresh.unlink(missing_ok=True)
                return sum(_blank(path, left) for path in (self._older, self._erasing, self._path))

    def _fold_all(self, left: Redaction) -> int:
        num_gone = self._fold(left)  # with what a crash has left on its way out
        if self._path.exists():
            self._path.replace(self._erasing)
            time.sleep(_LAST_WRITES_S)
            num_gone += self._fold(left)
        return num_gone

    def _fold(self, left: Redaction) -> int:
        """Make one file of the older one and the one on its way out."""
        if not self._older.exists() and not self._erasing.exists():
            return 0
        num_gone = 0
        with _owners_only(self._fresh) as kept:
            for path in (self._older, self._erasing):
                num_gone += _copy(path, kept, left)
        _put_in_place(self._fresh, self._older)
        _destroy(self._erasing)
        return num_gone

    def _is_full(self) -> bool:
        try:
            return self._path.stat().st_size * 2 >= self._max_bytes
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
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


def _copy(path: Path, kept: int, left: Redaction) -> int:
    num_gone = 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
        for line in lines:
            if not (text := line.strip()):
                continue
            if (rest := left(text)) is None:
                num_gone += 1
            else:
                _write(kept, rest + b"\n")  # the last one of a full disk lacks its end
    return num_gone


def _blank(path: Path, left: Redaction) -> int:
    """Takes no room. What is left of a line is passed over by readers."""
    num_gone, at = 0, 0
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        for line in file:
            text = line.rstrip(b"\n")
            rest = left(text) if text.strip() else text
            if rest != text:
                os.pwrite(file.fileno(), (rest or b"").ljust(len(text))[: len(text)], at)
            num_gone += rest is None
            at += len(line)
        os.fsync(file.fileno())
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
