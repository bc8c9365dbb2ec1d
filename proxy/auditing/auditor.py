"""Asking the upstream behind the reader's back what it would have said.

    served hit       both fresh answers are asked for, a share of the hits
    hit not served   the first is the reader's own; the second is asked for where that differs
    hit not served because audits ask for more similarity: the same, of the same share

The first fresh answer is kept like any other, so that the question is an exact hit from then on.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

import msgspec

from index.audit.epoch import NUM_STEPS
from index.audit.label import Label, label_of
from index.audit.standing import RAISE
from index.errors import IndexFault
from index.verdict import Accepted, judge, raised_by
from proxy.answer import payload as payloads
from proxy.answer.control import fits
from proxy.auditing.judges import Judge, Judges
from proxy.auditing.ledger import Ledger
from proxy.auditing.reports import Reports
from proxy.auditing.text import text_of
from proxy.auditing.tier import Mark, Tier
from proxy.errors import RejoinderError
from proxy.lookup.found import Found
from proxy.misses.flight import Flight
from proxy.misses.forwarding import Forwarder
from proxy.observing.metrics import Metrics
from proxy.outcome import SemanticHit
from proxy.question import Question

log = logging.getLogger("rejoinder.audit")

_MAX_AT_ONCE = 4
"""Audits of one tier that a process has under way; further hits go unaudited."""
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
        self._running: dict[asyncio.Task[None], Tier] = {}

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
        mark, policy = hit.mark, question.route.policy
        assert policy is not None
        assert policy.semantic is not None
        if mark is None or not question.eligibility.write:
            return
        # Beside hits that are served: at their rate, or the labels would tell of these above all.
        is_beside = mark.standing.serves and question.serves
        if not is_beside or self._random() < policy.semantic.audit:
            self._begin(mark, lambda: self._of_withheld(question, hit, mark, fresh))

    async def settle(self) -> None:
        """Returns when those under way have ended."""
        if self._running:
            await asyncio.wait([*self._running])

    async def close(self) -> None:
        """Give up those under way."""
        running = [*self._running]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _begin(self, mark: Mark, audit: Callable[[], Awaitable[Label | None]]) -> None:
        if sum(tier is mark.tier for tier in self._running.values()) >= _MAX_AT_ONCE:
            self._count(mark, "skipped")
            return
        task = asyncio.create_task(self._run(mark, audit))
        self._running[task] = mark.tier
        task.add_done_callback(self._running.pop)

    async def _run(self, mark: Mark, audit: Callable[[], Awaitable[Label | None]]) -> None:
        label: Label | None = None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                label = await audit()
        except (RejoinderError, IndexFault, TimeoutError) as error:
            log.info("an audit was given up: %s", error)
        except Exception:  # a bug of ours must not end more than this audit
            log.exception("an audit failed")
        self._count(mark, label or "failed")
        if label is None:
            return
        if label == "stored_only":
            mark.tier.refuse(mark.pair)
        await self._ledger.refresh(mark.tier)

    async def _of_served(
        self, question: Question, found: Found, hit: SemanticHit, mark: Mark
    ) -> Label | None:
        """Raises ClientError where the tenant has no tokens left for it."""
        flights = [
            self._forwarder.ask_beside(question, found),
            self._forwarder.ask_beside(question, Found()),
        ]
        first, second = [await _fresh(flight) for flight in flights]
        return await self._labelled(question, hit, mark, first, second)

    async def _of_withheld(
        self, question: Question, hit: SemanticHit, mark: Mark, fresh: Flight
    ) -> Label | None:
        stored, first = _stored(question, hit), await _fresh(fresh)
        if stored is None or first is None:
            return None
        if not mark.standing.serves and await self._agree(question, stored, first.text):
            # Enough for the upper bound, the only one that is asked for here.
            return self._counted(question, hit, mark, "agree")
        second = await _fresh(self._forwarder.ask_beside(question, Found()))
        return await self._labelled(question, hit, mark, first, second)

    async def _labelled(
        self,
        question: Question,
        hit: SemanticHit,
        mark: Mark,
        first: "_Fresh | None",
        second: "_Fresh | None",
    ) -> Label | None:
        stored = _stored(question, hit)
        if stored is None or first is None or second is None:
            return None
        to_first = await self._agree(question, stored, first.text)
        to_second = await self._agree(question, stored, second.text)
        fresh = await self._agree(question, first.text, second.text)
        if to_first is None or to_second is None or fresh is None:
            return self._counted(question, hit, mark, "unjudged")
        label = label_of(first=to_first, second=to_second, fresh=fresh)
        return self._counted(question, hit, mark, label)

    async def _agree(self, question: Question, one: str | None, other: str | None) -> bool | None:
        """None where nobody can say. Raises as `Judge.agree`."""
        if one is None or other is None:
            return None
        if not one or not other:
            return one == other
        return await self._judge(question).agree(question, one, other)

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


class _Fresh(msgspec.Struct, frozen=True):
    """An answer that the upstream gave just now."""

    text: str | None
    """As `text_of`; None also of one that was no whole answer: filtered, or beyond all limits."""


async def _fresh(flight: Flight) -> _Fresh | None:
    """What a flight brought, when it has ended; it is not listened to, so its readers may leave.
    None: the upstream failed, which says nothing of the hit."""
    assert flight.task is not None
    await asyncio.wait({flight.task})
    ending = flight.ending
    if ending is None or ending.error is not None or _is_refusal(flight):
        return None
    return _Fresh(None if ending.payload is None else text_of(ending.payload))


def _is_refusal(flight: Flight) -> bool:
    return flight.head is None or flight.head.status >= 400


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
            similarity=hit.similarity,
            rules=raised_by(question.rules, step * RAISE),
        )
        if isinstance(verdict, Accepted):
            return step
    return 0
