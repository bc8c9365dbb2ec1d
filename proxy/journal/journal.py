"""The request log of a process, and its null object."""

import asyncio
import logging
from collections.abc import Callable, Collection
from itertools import islice

from proxy.journal.erasure import Erasure
from proxy.journal.files import Files
from proxy.journal.line import erased, read_line, remembered_of, write_line
from proxy.observing.lines import Lines
from proxy.observing.recollection import Remembered, last_of_each
from proxy.observing.seen import Seen
from proxy.port.passage import Passage
from proxy.settings.record import Record

log = logging.getLogger("rejoinder.record")

_MAX_LINES = 10_000
"""So far back is looked for what is shown; some tenths of a second."""


class NoJournal:
    """There is no request log."""

    def note(self, passage: Passage, *, gone: Collection[str] = ()) -> None:
        """Nothing is kept."""

    async def recollect(self, request_id: str, tenant: str | None) -> tuple[Remembered, ...]:
        """Nothing was."""
        return ()

    async def latest(self, fits: Callable[[Seen], bool], *, limit: int) -> tuple[Seen, ...]:
        """None were."""
        return ()

    async def flush(self) -> None:
        """Nothing is pending."""

    async def keys(self, erasure: Erasure) -> frozenset[str]:
        """Nothing is there."""
        return frozenset()

    async def erase(self, erasure: Erasure) -> int:
        """Nothing is there."""
        return 0


class Journal:
    """Appends a line for each passage to a cached surface, and finds them again.

    A line that cannot be written is lost, counted and logged once, never waited for.
    """

    def __init__(self, record: Record, *, lost: Callable[[int], None]) -> None:
        self._record = record
        # Whether the file is full is looked up after each handful: other processes fill it, too.
        self._lines = Lines(record.path, lost=lost, written=self._rotate)
        self._files = Files(record.path, max_bytes=record.max)

    @property
    def path(self) -> str:
        """Of its newer file."""
        return self._record.path

    def note(self, passage: Passage, *, gone: Collection[str] = ()) -> None:
        """A passage has ended. `gone`: keys of erased answers, whose questions are left out."""
        if passage.surface is None:
            return
        line = write_line(passage, bodies=self._record.bodies, gone=gone)
        self._lines.append(line)

    async def recollect(self, request_id: str, tenant: str | None) -> tuple[Remembered, ...]:
        """The last request of each caller under an id, by `tenant` where one is given, of which
        the words are kept."""
        await self.flush()
        return await asyncio.to_thread(self._find, request_id, tenant)

    async def latest(self, fits: Callable[[Seen], bool], *, limit: int) -> tuple[Seen, ...]:
        """Those that fit, newest first, among the last lines."""
        await self.flush()
        return await asyncio.to_thread(self._latest, fits, limit)

    async def flush(self) -> None:
        """What was noted is in the file as this returns."""
        await self._lines.flush()

    async def keys(self, erasure: Erasure) -> frozenset[str]:
        """Under which the answers to the requests were stored that it covers. Raises OSError."""
        await self.flush()
        return await asyncio.to_thread(self._keys, erasure)

    async def erase(self, erasure: Erasure) -> int:
        """Take out the lines that it covers, of all processes, and its words out of the others; how
        many lines went. Those that another process has not flushed come later. Raises OSError."""
        await self.flush()
        return await asyncio.to_thread(self._files.rewrite, lambda text: erased(text, erasure))

    def _keys(self, erasure: Erasure) -> frozenset[str]:
        lines = (read_line(text) for text in self._files.lines())
        return frozenset(line.key for line in lines if line is not None and erasure.covers(line))

    def _latest(self, fits: Callable[[Seen], bool], limit: int) -> tuple[Seen, ...]:
        lines = map(read_line, islice(self._files.lines_backwards(), _MAX_LINES))
        return tuple(islice((line for line in lines if line is not None and fits(line)), limit))

    def _find(self, request_id: str, tenant: str | None) -> tuple[Remembered, ...]:
        wanted = request_id.encode()
        lines = (read_line(text) for text in self._files.lines() if wanted in text)
        return last_of_each(
            remembered
            for line in lines
            if line is not None and line.request_id == request_id and tenant in (None, line.tenant)
            if (remembered := remembered_of(line)) is not None
        )

    def _rotate(self) -> None:
        try:
            self._files.rotate()
        except OSError as error:
            log.error("the request log cannot be rotated: %s", error)


def make_journal(record: Record | None, *, lost: Callable[[int], None]) -> Journal | NoJournal:
    """Of the config in force."""
    return NoJournal() if record is None else Journal(record, lost=lost)
