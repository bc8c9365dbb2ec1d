"""The cache as the pipeline sees it: lookups and a write, and no faults.

Whatever fails in here (store, embedder, index) is counted, logged and becomes a miss or an answer
that is not kept; never an error of the request.
"""

import asyncio
import logging
import random
from collections.abc import Callable

import msgspec

from index.entry import Entry
from index.errors import IndexFault, StoreFault
from index.semantic import NoSemantic, Semantic, Sought
from index.store import Lookup, NotStored, Stored
from index.verdict import Rules
from index.volatility.examples import Learned, NothingLearned
from proxy.answer.freshness import MOST_LATENCIES, Fresh, Stale, is_due_early
from proxy.auditing.ledger import Tiers
from proxy.auditing.tier import Tier
from proxy.lookup.found import Found
from proxy.lookup.late import MAX_LATE, Late, brought, give_up
from proxy.lookup.meaning import examples_of
from proxy.lookup.refusal import rules_now
from proxy.lookup.shelf import Shelf
from proxy.lookup.trial import Trial, freshness_of
from proxy.observing.metrics import Metrics
from proxy.outcome import ExactHit, SemanticHit
from proxy.question import Question

log = logging.getLogger("rejoinder.cache")

_FAULTS = {"embedder_late": "embedder_late", "fault": "embedder"}
"""Reasons of a search by meaning that count as faults, and of what."""


class Cache:
    """Store and semantic index behind one door."""

    def __init__(
        self,
        store: Shelf,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        random: Callable[[], float] = random.random,
        tiers: Tiers | None = None,
        max_late: int = MAX_LATE,
    ) -> None:
        """`random` gives numbers in [0, 1). `tiers`: None where nothing is audited. `max_late`:
        searches that may go on behind their deadline."""
        self._store = store
        self._tiers = tiers
        self._random = random
        self.semantic: Semantic = NoSemantic()
        """Replaced once, when the embedder has been loaded."""
        self.learned: Learned = NothingLearned()
        """Replaced together with it."""
        self._metrics = metrics
        self._clock = clock
        self._late = Late(most=max_late)

    async def find(self, question: Question) -> Found:
        """Exact first; by meaning where the question is eligible and nothing exact was found."""
        exact = await self.find_exact(question)
        if exact.hit is not None or exact.snapshot is None or not question.eligibility.semantic:
            return exact
        if exact.staleness is not None and exact.staleness.may_serve_while_revalidating:
            return exact
        return await self._by_meaning(question, exact)

    async def find_besides(self, question: Question, unfit: Found) -> Found:
        """What else there is, where the answer that `find` gave cannot be given here."""
        found = Found(
            snapshot=unfit.snapshot,
            further_tags=unfit.further_tags,
            embedding=unfit.embedding,
            embedder=unfit.embedder,
            late=unfit.late,
            reasons=("vary",),
        )
        has_sought = isinstance(unfit.hit, SemanticHit)
        if has_sought or not question.eligibility.semantic or unfit.snapshot is None:
            return found
        give_up(unfit.late)
        return await self._by_meaning(question, found)

    def over(self, shelf: Shelf) -> "Cache":
        """The same cache over another shelf; none of its hits is due early, and what is late is
        given up."""
        other = Cache(
            shelf,
            metrics=self._metrics,
            clock=self._clock,
            random=lambda: 0.0,
            tiers=self._tiers,
            max_late=0,
        )
        other.semantic, other.learned = self.semantic, self.learned
        return other

    async def keep(self, entry: Entry) -> NotStored | None:
        """Store and index a finished answer. None: it is stored."""
        try:
            kept = await self._store.put(entry)
        except StoreFault as fault:
            self._fault("store", fault)
            return NotStored(reason="store_fault")
        match kept:
            case Stored(evicted=evicted):
                self.semantic.add(entry)
                self._metrics.evictions.inc(evicted)
                self._metrics.recordings.labels("stored").inc()
                return None
            case NotStored(reason=reason):
                self._metrics.recordings.labels(reason).inc()
                return kept

    async def caught_up(self, question: Question, found: Found) -> Found:
        """With what a search that was late has brought by now: `barred`, or an embedding."""
        sought = brought(found.late)
        if sought is None or sought.embedding is None:
            return found
        try:
            barred = await self._learned_bar(question, sought)
        except Exception:  # a fault behind this border costs no answer
            self._metrics.faults.labels("semantic").inc()
            log.exception("what a late embedding tells is not known")
            return found
        embedded = found.embedded(sought.embedding, sought.embedder)
        return msgspec.structs.replace(embedded, barred=barred)

    @property
    def embedder(self) -> str:
        """Identity of the embedder whose vectors new entries carry; empty without one."""
        return self.semantic.identity

    async def close(self) -> None:
        """Let go of the embedder."""
        await self._late.close()
        await self.semantic.close()

    async def find_exact(self, question: Question) -> Found:
        """Only what was asked in the same words."""
        fingerprint, now = question.fingerprint, self._clock()
        assert fingerprint is not None
        with question.call.timing.phase("lookup"):
            lookup = await self._get(fingerprint.key, now=now, tags=question.tags)
        if lookup is None:
            return Found(reasons=("store_fault",))
        entry = lookup.entry
        if entry is None or not question.eligibility.read:
            reasons = (lookup.reason,) if question.eligibility.read else ()
            return Found(snapshot=lookup.snapshot, further_tags=lookup.tags, reasons=reasons)
        if entry.canonical != fingerprint.canonical:
            log.error("two requests share the key %s: not served", fingerprint.key)
            return Found(snapshot=lookup.snapshot, reasons=("key_collision",))
        match freshness_of(lookup, entry, question, now=now):
            case Fresh(age_s=age_s, ttl_s=ttl_s) as fresh:
                is_due = self._is_due(fresh, entry, question)
                hit = ExactHit(entry=entry, age_s=age_s, ttl_s=ttl_s, is_due=is_due)
                return Found(
                    hit=hit,
                    snapshot=lookup.snapshot,
                    embedding=entry.embedding,
                    embedder=entry.embedder,
                )
            case Stale() as staleness:
                return Found(
                    stale=entry,
                    staleness=staleness,
                    snapshot=lookup.snapshot,
                    embedding=entry.embedding,
                    embedder=entry.embedder,
                    reasons=staleness.reasons,
                )
            case unusable:
                return Found(snapshot=lookup.snapshot, reasons=(unusable.reason,))

    async def _by_meaning(self, question: Question, exact: Found) -> Found:
        try:
            return await self._meant(question, exact)
        except Exception:  # a fault behind this border is a miss
            self._metrics.faults.labels("semantic").inc()
            log.exception("search by meaning failed, the request goes on without it")
            return exact.because("semantic_fault")

    async def _meant(self, question: Question, exact: Found) -> Found:
        with question.call.timing.phase("embed"):
            search = await self._search(question)
        is_late = not search.done() or search.cancelled()
        sought = Sought(reason="embedder_late") if is_late else search.result()
        if sought.reason in _FAULTS:
            self._metrics.faults.labels(_FAULTS[sought.reason]).inc()
        barred = await self._learned_bar(question, sought)
        if barred is not None:
            return Found(barred=barred, reasons=(barred,))
        found = msgspec.structs.replace(exact, hit=None, late=search if is_late else None)
        if sought.embedding is not None:
            found = found.embedded(sought.embedding, sought.embedder)
        if sought.reason:
            return found.because(sought.reason)
        if not question.eligibility.read:
            return found
        tier = self.tier(question)
        standing = None if tier is None else tier.standing
        if tier is not None and standing is None:
            return found.because("tier_unknown")
        trial = Trial(
            question, sought, tier=tier, semantic=self.semantic, get=self._get, clock=self._clock
        )
        found = await trial.first_accepted(found)
        if found.hit is not None and not (standing is None or standing.serves):
            found = msgspec.structs.replace(found, hit=None, withheld=found.hit)
        if standing is not None and found.withheld is not None:
            return found.because(f"tier_{standing.state}")
        if found.hit is None:
            reasons = dict.fromkeys(one.reason for one in found.near)
            return found.because(*(reasons or ("no_candidate",)))
        return found

    def tier(self, question: Question) -> Tier | None:
        """Of the question's policy; None without a semantic tier, or where nothing is audited."""
        policy, name = question.route.policy, question.route.policy_name
        if self._tiers is None or policy is None or policy.semantic is None or name is None:
            return None
        return self._tiers.tier(name, policy.semantic, embedder=self.semantic.identity)

    def rules(self, question: Question) -> Rules | None:
        """By which its candidates are judged now, with what audits ask for on top; None without a
        semantic tier."""
        return None if question.rules is None else rules_now(question, self.tier(question))

    async def _search(self, question: Question) -> asyncio.Task[Sought]:
        policy, fingerprint = question.route.policy, question.fingerprint
        assert policy is not None
        assert policy.semantic is not None
        assert fingerprint is not None
        tier = policy.semantic
        search = self.semantic.search(fingerprint.scope, fingerprint.prompt, limit=tier.candidates)
        return await self._late.search(search, deadline_s=tier.deadline)

    async def _learned_bar(self, question: Question, sought: Sought) -> str | None:
        """Why a question that no pattern names is volatile; a request that names a TTL is not."""
        policy, ttl_s = question.route.policy, question.call.directives.ttl_s
        if sought.embedding is None or policy is None or policy.semantic is None or ttl_s:
            return None
        assert question.fingerprint is not None
        if question.patterns and question.patterns.excuse(question.fingerprint.prompt):
            return None
        examples = examples_of(policy.semantic, policy.volatile)
        judged = self.learned.judge(sought.embedding, examples)
        try:
            return await asyncio.wait_for(judged, policy.semantic.deadline)
        except TimeoutError:
            # The policy's examples are still being embedded: nobody knows whether it is volatile.
            self._metrics.faults.labels("embedder_late").inc()
            return "volatile:unknown"
        except IndexFault as fault:
            self._fault("embedder", fault)
            return None

    def _is_due(self, fresh: Fresh, entry: Entry, question: Question) -> bool:
        policy = question.route.policy
        if policy is None or not policy.early_refresh or not question.shares_flights:
            return False
        latency_s = entry.latency_ms / 1000
        if fresh.ttl_s > MOST_LATENCIES * latency_s:
            return False
        return is_due_early(fresh, latency_s=latency_s, chance=1 - self._random())

    async def _get(self, key: str, *, now: float, tags: tuple[str, ...]) -> Lookup | None:
        try:
            return await self._store.get(key, now=now, tags=tags)
        except StoreFault as fault:
            self._fault("store", fault)
            return None

    def _fault(self, part: str, fault: IndexFault) -> None:
        self._metrics.faults.labels(part).inc()
        log.warning("%s failed, the request goes on without it: %s", part, fault)
