"""The other workers, asked through the parent."""

from collections.abc import Sequence
from typing import TypeVar

from proxy.auditing.reports import Verdict
from proxy.control import (
    Answer,
    Channel,
    CountAll,
    CountedAll,
    Forget,
    Forgotten,
    Question,
    Recall,
    Recalled,
    Recollect,
    Recollected,
    Report,
    Reported,
)
from proxy.counts import Counts
from proxy.journal.erasure import Erasure
from proxy.recollection import Remembered
from proxy.seen import Seen

A = TypeVar("A", bound=Answer)


class Siblings:
    """See `proxy.peers.Peers`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def counts(self) -> Sequence[Counts]:
        return (await self._ask(CountAll(), CountedAll)).counts

    async def report(self, request_id: str, verdict: Verdict) -> bool:
        return (await self._ask(Report(request_id=request_id, verdict=verdict), Reported)).known

    async def recent(self, limit: int) -> Sequence[Seen]:
        return (await self._ask(Recall(limit=limit), Recalled)).requests

    async def recollect(self, request_id: str, tenant: str | None) -> Remembered | None:
        asked = Recollect(request_id=request_id, tenant=tenant)
        return (await self._ask(asked, Recollected)).remembered

    async def forget(self, erasure: Erasure) -> int:
        return (await self._ask(Forget(erasure=erasure), Forgotten)).num_dropped

    async def _ask(self, question: Question, kind: type[A]) -> A:
        answer = await self._channel.ask(question)
        assert isinstance(answer, kind), answer
        return answer
