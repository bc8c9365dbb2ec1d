"""What a process remembers of requests: the last ones in memory, and the request log. Outlives
every reload."""

from collections.abc import Callable

from proxy.journal.erasure import Erasure
from proxy.journal.journal import Journal, NoJournal, make_journal
from proxy.observing.recent import Recent
from proxy.port.passage import Passage
from proxy.settings.config import Config

_REMEMBERED_S = 3600.0
"""No request takes longer."""


class Records:
    """Noted once, for both."""

    def __init__(
        self, config: Config, *, lost: Callable[[int], None], drop: Callable[[], None]
    ) -> None:
        """`lost` is told how many lines of the request log were lost; `drop` lets go of what else
        is remembered of requests."""
        self.recent = Recent()
        self.journal: Journal | NoJournal = make_journal(config.record, lost=lost)
        self._former: dict[str, Journal] = {}
        """At paths that another config had; what is there is still to be erased."""
        self._erasures: list[Erasure] = []
        """The last ones: requests that came before one may end after it."""
        self._record = config.record
        self._lost = lost
        self._drop = drop

    def note(self, passage: Passage) -> None:
        """A passage has ended, and is taken over (see `proxy.port.passage.Watcher`)."""
        gone: frozenset[str] = frozenset()
        for erasure in self._erasures:
            if passage.arrived_at <= erasure.at and passage.surface is not None:
                if erasure.covers(passage.seen):
                    return
                gone |= erasure.keys
        self.journal.note(passage, gone=gone)
        self.recent.note(passage, gone=gone)

    async def adopt(self, config: Config) -> None:
        """Another config is in force. What is pending for the old file still goes there."""
        if config.record != self._record:
            before, self._record = self.journal, config.record
            self.journal = make_journal(config.record, lost=self._lost)
            await before.flush()
            if isinstance(before, Journal):
                self._former[before.path] = before

    async def forget(self, erasure: Erasure) -> int:
        """Drop what is in memory, and have nothing pending for the log; requests dropped."""
        kept = (one for one in self._erasures if one.at > erasure.at - _REMEMBERED_S)
        self._erasures = [*kept, erasure]
        num_dropped = self.recent.forget(erasure)
        self._drop()
        await self.journal.flush()
        return num_dropped

    async def keys(self, erasure: Erasure) -> frozenset[str]:
        """See `Journal.keys`: of all files, also of those of former configs."""
        found = [await one.keys(erasure) for one in self._journals()]
        return frozenset[str]().union(*found)

    async def erase(self, erasure: Erasure) -> int:
        """See `Journal.erase`: out of all files, also those of former configs."""
        return sum([await one.erase(erasure) for one in self._journals()])

    def _journals(self) -> tuple[Journal | NoJournal, ...]:
        now = self.journal.path if isinstance(self.journal, Journal) else None
        return (self.journal, *(one for path, one in self._former.items() if path != now))

    async def close(self) -> None:
        """Write what is pending."""
        await self.journal.flush()
