"""What users say of hits: right or wrong, by the id of their request."""

from collections import OrderedDict
from typing import Literal

from proxy.auditing.ledger import Ledger
from proxy.auditing.tier import Mark
from proxy.metrics import Metrics

Verdict = Literal["right", "wrong"]

_MAX_REMEMBERED = 10_000
"""Hits of a process that can be reported on, the last ones."""


class Reports:
    """The hits that went out lately."""

    def __init__(self, ledger: Ledger, *, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._marks: OrderedDict[str, Mark] = OrderedDict()

    def remember(self, request_id: str, mark: Mark) -> None:
        """A hit went out under this id."""
        self._marks[request_id] = mark
        if len(self._marks) > _MAX_REMEMBERED:
            self._marks.popitem(last=False)

    async def take(self, request_id: str, verdict: Verdict) -> bool:
        """Count what a user says. False where this process has not served a hit under that id, or
        it has been reported on before. After `wrong` the two questions never again share an
        answer, in any process; each keeps its own."""
        mark = self._marks.pop(request_id, None)
        if mark is None:
            return False
        self._metrics.feedback.labels(mark.tier.policy, verdict).inc()
        if verdict == "wrong":
            mark.tier.count_report(mark.standing)
            await self._ledger.refuse(mark)
            await self._ledger.refresh(mark.tier)
        return True
