"""What users say of hits: right or wrong, by the id of their request."""

from collections import OrderedDict
from typing import Literal

from proxy.auditing.ledger import Ledger
from proxy.auditing.tier import Mark
from proxy.observing.metrics import Metrics

Verdict = Literal["right", "wrong"]

_MAX_REMEMBERED = 10_000
"""Hits of a process that can be reported on, the last ones."""


class Reports:
    """The hits that went out lately."""

    def __init__(self, ledger: Ledger, *, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._marks: OrderedDict[str, Mark | None] = OrderedDict()
        """None: reported on, or several hits went out under the id."""

    def remember(self, request_id: str, mark: Mark) -> None:
        """A hit went out under this id. Clients choose their ids: where another one has it, too,
        neither can be reported on, lest one client speaks of what another was given."""
        self._marks[request_id] = None if request_id in self._marks else mark
        self._marks.move_to_end(request_id)
        if len(self._marks) > _MAX_REMEMBERED:
            self._marks.popitem(last=False)

    def holds(self, request_id: str) -> bool:
        """Whether hits went out under this id, reported on or not."""
        return request_id in self._marks

    async def take(self, request_id: str, verdict: Verdict) -> bool:
        """Count what a user says. False where this process has not served a hit under that id,
        has served several, or it has been reported on before. After `wrong` the two questions never
        again share an answer, in any process; each keeps its own."""
        mark = self._marks.get(request_id)
        if mark is None:
            return False
        self._marks[request_id] = None
        self._metrics.feedback.labels(mark.tier.policy, verdict).inc()
        if verdict == "wrong":
            mark.tier.count_report(mark.standing)
            mark.tier.refuse(mark.pair)
            await self._ledger.refresh(mark.tier)
        return True
