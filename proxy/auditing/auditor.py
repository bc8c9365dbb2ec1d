"""Asking the upstream behind the reader's back what it would have said.

    served hit       both fresh answers are asked for, a share of the hits
    hit not served   the first is the reader's own; the second is asked for where that differs

The first fresh answer is kept like any other, so that the question is an exact hit from then on.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from index.audit.label import Label, label_of
from index.audit.standing import NUM_STEPS, RAISE
from index.verdict import Accepted, judge
from proxy.answer import payload as payloads
from proxy.answer.control import fits
from proxy.auditing.judges import Judge, Judges
from proxy.auditing.ledger import Ledger
from proxy.auditing.reports import Reports
from proxy.auditing.text import text_of
from proxy.auditing.tier import Mark
from proxy.errors import ClientError
from proxy.flight import Flight
from proxy.forwarding import Forwarder
from proxy.found import Found
from proxy.metrics import Metrics
from proxy.outcome import SemanticHit
from proxy.question import Question

log = logging.getLogger("rejoinder.audit")

_MAX_AT_ONCE = 4
"""Audits of a process under way; further hits go unaudited."""
_PATIENCE_S = 120.0
"""An audit that takes longer is given up."""


class Auditor:
    """The audits of one config."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        forwarder: Forwarder,
        judges: Judges,
        reports: Reports,
        metrics: Metrics,
        random: Callable[[], float] = random.random,
    ) -> None:
        """`random` gives numbers in [0, 1)."""
        self._ledger = ledger
        self._forwarder = forwarder
        self._judges = judges
        self._reports = reports
        self._metrics = metrics
        self._random = random
        self._running: set[asyncio.Task[None]] = set()

    def served(self, question: Question, found: Found, hit: SemanticHit) -> None:
        """A hit went out. Returns at once."""
        mark, policy = hit.mark, question.route.policy
        assert policy is not None
        assert policy.semantic is not None
        if mark is None:
            return
        mark.tier.count_hit(mark.standing)
        self._reports.remember(question.call.request_id, mark)
        may_ask = question.eligibility.write and not question.call.directives.only_if_cached
        if may_ask and self._random() < policy.semantic.audit:
            self._begin(mark, lambda: self._of_served(question, found, hit, mark))

    def withheld(self, question: Question, hit: SemanticHit, fresh: Flight) -> None:
        """A hit did not go out, and `fresh` was started for its reader. Returns at once."""
        mark = hit.mark
        if mark is not None and question.eligibility.write:
            self._begin(mark, lambda: self._of_withheld(question, hit, mark, fresh))

    async def settle(self) -> None:
        """Returns when those under way have ended."""
        if self._running:
            await asyncio.wait(self._running)

    async def close(self) -> None:
        """Give up those under way."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _begin(self, mark: Mark, audit: Callable[[], Awaitable[Label | None]]) -> None:
        if len(self._running) >= _MAX_AT_ONCE:
            self._count(mark, "skipped")
            return
        task = asyncio.create_task(self._run(mark, audit))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, mark: Mark, audit: Callable[[], Awaitable[Label | None]]) -> None:
        label: Label | None = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                label = await audit()
        except (ClientError, TimeoutError) as error:
            log.info("an audit was given up: %s", error)
        except Exception:  # a bug of ours must not end more than this audit
            log.exception("an audit failed")
        self._count(mark, label or "failed")
        if label is None:
            return
        if label == "stored_only":
            await self._ledger.refuse(mark)
        await self._ledger.refresh(mark.tier)

    async def _of_served(
        self, question: Question, found: Found, hit: SemanticHit, mark: Mark
    ) -> Label | None:
        """Raises ClientError where the tenant has no tokens left for it."""
        flights = [
            self._forwarder.ask_beside(question, found),
            self._forwarder.ask_beside(question, Found()),
        ]
        first, second = [await _text(flight) for flight in flights]
        return await self._labelled(question, hit, mark, first, second)

    async def _of_withheld(
        self, question: Question, hit: SemanticHit, mark: Mark, fresh: Flight
    ) -> Label | None:
        stored, first = _stored(question, hit), await _text(fresh)
        if stored is None or first is None:
            return None
        if not mark.standing.serves:
            agrees = await self._judge(question).agree(question, stored, first)
            if agrees:
                # Enough for the upper bound, the only one that is asked for here.
                return self._counted(question, hit, mark, "agree")
        second = await _text(self._forwarder.ask_beside(question, Found()))
        return await self._labelled(question, hit, mark, first, second)

    async def _labelled(
        self,
        question: Question,
        hit: SemanticHit,
        mark: Mark,
        first: str | None,
        second: str | None,
    ) -> Label | None:
        stored, judge = _stored(question, hit), self._judge(question)
        if stored is None or first is None or second is None:
            return None
        to_first = await judge.agree(question, stored, first)
        to_second = await judge.agree(question, stored, second)
        fresh = await judge.agree(question, first, second)
        if to_first is None or to_second is None or fresh is None:
            return None
        label = label_of(first=to_first, second=to_second, fresh=fresh)
        return self._counted(question, hit, mark, label)

    def _counted(self, question: Question, hit: SemanticHit, mark: Mark, label: Label) -> Label:
        mark.tier.count_label(mark.standing, label, step=_last_step(question, hit))
        return label

    def _judge(self, question: Question) -> Judge:
        policy = question.route.policy
        assert policy is not None
        assert policy.semantic is not None
        return self._judges.judge_of(policy.semantic)

    def _count(self, mark: Mark, result: str) -> None:
        self._metrics.audits.labels(mark.tier.policy, result).inc()


async def _text(flight: Flight) -> str | None:
    """What a flight brought, when it has ended; it is not listened to, so its readers may leave."""
    assert flight.task is not None
    await asyncio.wait({flight.task})
    ending = flight.ending
    return None if ending is None or ending.payload is None else text_of(ending.payload)


def _stored(question: Question, hit: SemanticHit) -> str | None:
    payload = payloads.decode(hit.entry.payload)
    if payload is None or not fits(payload.varied, question.call.headers):
        return None
    return text_of(payload)


def _last_step(question: Question, hit: SemanticHit) -> int:
    """The last step of tightening at which it would still be a hit."""
    assert question.fingerprint is not None
    assert question.rules is not None
    for step in range(NUM_STEPS - 1, 0, -1):
        verdict = judge(
            question.fingerprint.prompt,
            hit.entry.prompt,
            similarity=hit.similarity - step * RAISE,
            rules=question.rules,
        )
        if isinstance(verdict, Accepted):
            return step
    return 0
