"""What a process remembers of requests: the last ones in memory, and the request log. Outlives
every reload."""

from collections.abc import Callable

from proxy.journal.erasure import Erasure
from proxy.journal.journal import Journal, NoJournal, make_journal
from proxy.passage import Passage
from proxy.recent import Recent
from proxy.settings.config import Config


class Records:
    """Noted once, for both."""

    def __init__(
        self, config: Config, *, lost: Callable[[int], None], drop: Callable[[], None]
    ) -> None:
        """`lost` is told how many lines of the request log were lost; `drop` lets go of what else
        is remembered of requests."""
        self.recent = Recent()
        self.journal: Journal | NoJournal = make_journal(config.record, lost=lost)
        self._record = config.record
        self._lost = lost
        self._drop = drop

    def note(self, passage: Passage) -> None:
        """A passage has ended. See `proxy.passage.Watcher`."""
        self.recent.note(passage)
        self.journal.note(passage)

    async def adopt(self, config: Config) -> None:
        """Another config is in force. What is pending for the old file still goes there."""
        if config.record != self._record:
            before, self._record = self.journal, config.record
            self.journal = make_journal(config.record, lost=self._lost)
            await before.flush()

    async def forget(self, erasure: Erasure) -> int:
        """Drop what is in memory, and have nothing pending for the log; requests dropped."""
        num_dropped = self.recent.forget(erasure.covers)
        self._drop()
        await self.journal.flush()
        return num_dropped

    async def close(self) -> None:
        """Write what is pending."""
        await self.journal.flush()
