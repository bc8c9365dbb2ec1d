"""Lines that are appended to a file, off the event loop and within bounds."""

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

log = logging.getLogger("rejoinder.lines")

MAX_PENDING_BYTES = 4 * 2**20
_EVERY_S = 0.25
_PIPE_BYTES = 4096
"""POSIX, `write`: so much goes into a pipe in one piece, whoever else writes to it."""
_STDOUT = 1


class Lines:
    """A file that several processes may append to. It is opened anew for each handful of lines, so
    whoever rotates it only has to move it away.

    A line that cannot be written is lost, not waited for; that is logged once until it works again.
    """

    def __init__(
        self,
        path: str | None,
        *,
        lost: Callable[[int], None],
        written: Callable[[], None] | None = None,
        max_pending_bytes: int = MAX_PENDING_BYTES,
    ) -> None:
        """`path`: None for standard output. `lost` is told how many lines were lost. `written` is
        called in a thread after each handful; it may block and must not raise."""
        self._path = path
        self._lost = lost
        self._written = written
        self._max_pending_bytes = max_pending_bytes
        self._pending: list[bytes] = []
        self._num_bytes = 0
        self._pacing: asyncio.Task[None] | None = None
        self._in_order = asyncio.Lock()
        """Held while a handful is on its way, so that none overtakes it."""
        self._failed = False

    def append(self, line: bytes) -> None:
        """One line, with its end. Returns at once; needs a running loop."""
        if self._num_bytes + len(line) > self._max_pending_bytes:
            self._lost(1)
            return
        self._pending.append(line)
        self._num_bytes += len(line)
        if self._pacing is None or self._pacing.done():
            self._pacing = asyncio.create_task(self._write_all())

    async def flush(self) -> None:
        """What was appended before is in the file, or lost, as this returns."""
        if self._pacing is not None:
            self._pacing.cancel()
            await asyncio.wait({self._pacing})
        await asyncio.shield(self._write_pending())

    async def _write_all(self) -> None:
        """Until nothing is pending."""
        while self._pending:
            await asyncio.sleep(_EVERY_S)
            await asyncio.shield(self._write_pending())

    async def _write_pending(self) -> None:
        async with self._in_order:
            lines, self._pending, self._num_bytes = self._pending, [], 0
            if lines:
                await self._write(lines)

    async def _write(self, lines: Sequence[bytes]) -> None:
        try:
            await asyncio.to_thread(_write, self._path, lines)
        except OSError as error:
            self._lost(len(lines))
            if not self._failed:
                log.error("lines are lost, %s: %s", self._path or "standard output", error)
            self._failed = True
            return
        self._failed = False
        if self._written is not None:
            await asyncio.to_thread(self._written)


def _write(path: str | None, lines: Sequence[bytes]) -> None:
    """Raises OSError; then some of the lines may have been written."""
    if path is None:
        is_pipe = stat.S_ISFIFO(os.fstat(_STDOUT).st_mode)
        for piece in _pieces(lines) if is_pipe else (b"".join(lines),):
            _write_whole(_STDOUT, piece)
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        begin = b"\n" if is_torn(path) else b""
        _write_whole(descriptor, begin + b"".join(lines))
    finally:
        os.close(descriptor)


def is_torn(path: str) -> bool:
    """A file whose last line lacks its end, as a full disk or a crash leaves it. False also where
    that cannot be read."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(Path(path).stat().st_mode):
            with Path(path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                return size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
    return False


def _write_whole(descriptor: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])


def _pieces(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Whole lines together, as many as go in one piece."""
    piece = b""
    for line in lines:
        if piece and len(piece) + len(line) > _PIPE_BYTES:
            yield piece
            piece = b""
        piece += line
    yield piece
