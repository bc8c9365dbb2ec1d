"""The request log of a process, and its null object."""

import asyncio
import logging
from collections.abc import Callable

from proxy.journal.files import Files
from proxy.journal.line import Line, read_line, remembered_of, write_line
from proxy.observing.lines import Lines
from proxy.passage import Passage
from proxy.recollection import Remembered
from proxy.settings.record import Record

log = logging.getLogger("rejoinder.record")

_LOOK_EVERY_BYTES = 2**20
"""So much is written before it is looked whether the file is full."""


class NoJournal:
    """There is no request log."""

    def note(self, passage: Passage) -> None:
        """Nothing is kept."""

    async def recollect(self, request_id: str, tenant: str | None) -> Remembered | None:
        """Nothing was."""
        return None

    async def flush(self) -> None:
        """Nothing is pending."""

    async def erase(self, goes: Callable[[Line], bool]) -> int:
        """Nothing is there."""
        return 0


class Journal:
    """Appends a line for each passage to a cached surface, and finds them again.

    A line that cannot be written is lost, counted and logged once, never waited for.
    """

    def __init__(self, record: Record, *, lost: Callable[[int], None]) -> None:
        self._record = record
        self._lost = lost
        self._lines = Lines(record.path, lost=lost)
        self._files = Files(record.path, max_bytes=record.max)
        self._num_bytes = 0
        self._look_every_bytes = min(_LOOK_EVERY_BYTES, record.max // 8)
        self._rotating: asyncio.Task[None] | None = None

    def note(self, passage: Passage) -> None:
        """A passage has ended. See `proxy.passage.Watcher`."""
        if passage.surface is None:
            return
        line = write_line(passage, bodies=self._record.bodies)
        self._lines.append(line)
        self._num_bytes += len(line)
        if self._num_bytes >= self._look_every_bytes and self._rotating is None:
            self._num_bytes = 0
            self._rotating = asyncio.create_task(self._rotate())

    async def recollect(self, request_id: str, tenant: str | None) -> Remembered | None:
        """The last request under an id, where its words are kept; None where there is none, or it
        is not of `tenant`."""
        await self.flush()
        return await asyncio.to_thread(self._find, request_id, tenant)

    async def flush(self) -> None:
        """What was noted is in the file as this returns."""
        await self._lines.close()

    async def erase(self, goes: Callable[[Line], bool]) -> int:
        """Take out the lines that `goes` names, of all processes; how many. Those that another
        process has not flushed come later. Raises OSError."""
        await self.flush()

        def is_gone(text: bytes) -> bool:
            line = read_line(text)
            return line is not None and goes(line)

        return await asyncio.to_thread(self._files.rewrite, is_gone)

    def _find(self, request_id: str, tenant: str | None) -> Remembered | None:
        wanted = request_id.encode()
        for text in self._files.lines_backwards():
            line = read_line(text) if wanted in text else None
            if line is None or line.request_id != request_id:
                continue
            if tenant in (None, line.tenant):
                return remembered_of(line)
        return None

    async def _rotate(self) -> None:
        try:
            await asyncio.to_thread(self._files.rotate)
        except OSError as error:
            log.error("the request log cannot be rotated: %s", error)
        finally:
            self._rotating = None


def make_journal(record: Record | None, *, lost: Callable[[int], None]) -> Journal | NoJournal:
    """Of the config in force."""
    return NoJournal() if record is None else Journal(record, lost=lost)
