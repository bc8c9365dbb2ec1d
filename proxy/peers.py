"""All processes of a proxy, this one among them: what each has is put together here."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from proxy.auditing.reports import Reports, Verdict
from proxy.counts import Counts
from proxy.journal.erasure import Erasure
from proxy.journal.records import Records
from proxy.recollection import Remembered
from proxy.seen import Seen


class Peers(Protocol):
    """What the admin port asks of all processes, whichever of them was asked."""

    async def counts(self) -> Sequence[Counts]:
        """Of each process that answers in time."""
        ...

    async def report(self, request_id: str, verdict: Verdict) -> bool:
        """Tell what a user says of an answer; False where no process knows of it."""
        ...

    async def recent(self, limit: int) -> Sequence[Seen]:
        """The latest requests, newest first."""
        ...

    async def recollect(self, request_id: str, tenant: str | None) -> Remembered | None:
        """A request that went through; None where no process remembers it, or it is not of
        `tenant`."""
        ...

    async def forget(self, erasure: Erasure) -> int:
        """Drop the requests in memory whose data is erased, and write out what is pending for the
        request log; how many were dropped."""
        ...


class Alone:
    """There is one process."""

    def __init__(
        self, *, counts: Callable[[], Awaitable[Counts]], reports: Reports, records: Records
    ) -> None:
        self._counts = counts
        self._reports = reports
        self._records = records

    async def counts(self) -> Sequence[Counts]:
        return [await self._counts()]

    async def report(self, request_id: str, verdict: Verdict) -> bool:
        return await self._reports.take(request_id, verdict)

    async def recent(self, limit: int) -> Sequence[Seen]:
        return self._records.recent.latest(limit)

    async def recollect(self, request_id: str, tenant: str | None) -> Remembered | None:
        return self._records.recent.recollect(request_id, tenant=tenant)

    async def forget(self, erasure: Erasure) -> int:
        return await self._records.forget(erasure)
