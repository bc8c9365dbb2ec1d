"""What is asked of all processes of a proxy. Each tells its part; the parts are put together."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from proxy.auditing.reports import Reports, Verdict
from proxy.journal.erasure import Erasure
from proxy.journal.records import Records
from proxy.observing.recent import newest_of
from proxy.observing.recollection import Remembered, last_of_each
from proxy.observing.seen import Seen
from proxy.processes.counts import Counts

PATIENCE_S = 5.0
"""How long the others may take."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """What one process tells its part from."""

    index: int
    counts: Callable[[], Awaitable[Counts]]
    reports: Reports
    records: Records
    clock: Callable[[], float]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one process has, or all of them together."""

    num_missing: int = 0
    """Processes that have not told theirs."""


P = TypeVar("P", bound=Part)


class Gathered(Protocol[P]):
    """A question to all processes."""

    async def own(self, process: Process) -> P:
        """The part of one."""
        ...

    def join(self, parts: Sequence[P]) -> P:
        """All of them."""
        ...


class Counted(Part, frozen=True, kw_only=True, tag=True):
    """One of each process."""

    counts: tuple[Counts, ...]


class Count(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is in hand."""

    async def own(self, process: Process) -> Counted:
        return Counted(counts=(await process.counts(),))

    def join(self, parts: Sequence[Counted]) -> Counted:
        return Counted(counts=tuple(one for part in parts for one in part.counts))


class Held(Part, frozen=True, kw_only=True, tag=True):
    """By which processes."""

    by: tuple[int, ...]


class Holds(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Who gave answers by meaning under an id."""

    request_id: str

    async def own(self, process: Process) -> Held:
        return Held(by=(process.index,) if process.reports.holds(self.request_id) else ())

    def join(self, parts: Sequence[Held]) -> Held:
        return Held(by=tuple(one for part in parts for one in part.by))


class Reported(Part, frozen=True, kw_only=True, tag=True):
    """`known`: see `Reports.take`."""

    known: bool


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a user says of an answer, to the process that gave it."""

    request_id: str
    verdict: Verdict
    index: int

    async def own(self, process: Process) -> Reported:
        if process.index != self.index:
            return Reported(known=False)
        return Reported(known=await process.reports.take(self.request_id, self.verdict))

    def join(self, parts: Sequence[Reported]) -> Reported:
        return Reported(known=any(part.known for part in parts))


class Recalled(Part, frozen=True, kw_only=True, tag=True):
    """Newest first."""

    requests: tuple[Seen, ...]


class Recall(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The latest requests, so many."""

    limit: int

    async def own(self, process: Process) -> Recalled:
        return Recalled(requests=process.records.recent.latest(self.limit))

    def join(self, parts: Sequence[Recalled]) -> Recalled:
        lists = [part.requests for part in parts]
        return Recalled(requests=newest_of(lists, limit=self.limit))


class Recollected(Part, frozen=True, kw_only=True, tag=True):
    """The last one of each caller; none: no process remembers it, or it is not of that tenant."""

    remembered: tuple[Remembered, ...]


class Recollect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request by its id."""

    request_id: str
    tenant: str | None

    async def own(self, process: Process) -> Recollected:
        recent = process.records.recent
        return Recollected(remembered=recent.recollect(self.request_id, tenant=self.tenant))

    def join(self, parts: Sequence[Recollected]) -> Recollected:
        everything = (one for part in parts for one in part.remembered)
        return Recollected(remembered=last_of_each(everything))


class Forgotten(Part, frozen=True, kw_only=True, tag=True):
    """Requests in memory."""

    num_dropped: int


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Drop the requests whose data is erased, and have nothing of them pending for the log, which
    is rewritten afterwards."""

    erasure: Erasure
    until: float
    """When the rewriting may begin; Unix seconds."""

    async def own(self, process: Process) -> Forgotten:
        num_dropped = await process.records.forget(self.erasure)
        if process.clock() > self.until:
            # What was pending here may have come into the log after it was rewritten.
            await process.records.erase(self.erasure)
        return Forgotten(num_dropped=num_dropped)

    def join(self, parts: Sequence[Forgotten]) -> Forgotten:
        return Forgotten(num_dropped=sum(part.num_dropped for part in parts))
