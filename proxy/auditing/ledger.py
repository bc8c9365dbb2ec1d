"""The tiers of a process, kept in step with the store that all processes share."""

import asyncio
import contextlib
import heapq
import logging
import random
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from index.audit.epoch import folded
from index.audit.standing import Standing, due
from index.errors import StoreFault
from index.store import Store
from proxy.auditing.tier import PAIRS, Tier, name_of, terms_of
from proxy.observing.metrics import Metrics
from proxy.settings.config import Policy
from proxy.settings.semantic import Semantic

log = logging.getLogger("rejoinder.audit")

_TELL_EVERY_S = 2.0
"""How long other processes may take to learn of a change."""
_MAX_PAIRS = 10_000
"""Pairs of a tier that are remembered as wrong; with so many, its audits have closed it."""
_NUM_SLOTS = 256
"""Processes count what they have told in one of so many fields, so that these do not grow with each
start. Two in one slot may drop what is in doubt, whatever it says; they never count it twice."""


class Tiers(Protocol):
    """What a lookup asks of the audits."""

    def tier(self, policy: str, semantic: Semantic, *, embedder: str) -> Tier:
        """The tier of a policy. Returns at once."""
        ...


class Ledger:
    """All tiers. What is counted is told to the store every few seconds, and at each label."""

    def __init__(self, store: Store, *, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._tiers: dict[str, Tier] = {}
        self._latest: dict[tuple[str, str], tuple[Semantic, Tier]] = {}
        """The last answer by policy and embedder: settings change with a reload at most."""
        self._asked = asyncio.Event()
        self._in_order = asyncio.Lock()
        """What is learnt is never older than what was known."""
        self._slot = f"told.{random.randrange(_NUM_SLOTS)}"  # noqa: S311  # spreads, protects nothing

    def tier(self, policy: str, semantic: Semantic, *, embedder: str) -> Tier:
        """See `Tiers.tier`."""
        latest = self._latest.get((policy, embedder))
        if latest is not None and latest[0] is semantic:
            return latest[1]
        name = name_of(policy, semantic, embedder=embedder)
        tier = self._tiers.get(name)
        if tier is None:
            tier = self._tiers[name] = Tier(policy, name=name, terms=terms_of(semantic))
            self._asked.set()
        self._latest[policy, embedder] = semantic, tier
        return tier

    def shown(self) -> tuple[Tier, ...]:
        """The tiers in use whose standing is known."""
        return tuple(tier for _, tier in self._latest.values() if tier.standing is not None)

    async def prepare(self, policies: Mapping[str, Policy], *, embedder: str) -> None:
        """Know the tiers of a config before they are asked for, and forget all others: what they
        came to stays in the store."""
        used = {name: one.semantic for name, one in policies.items() if one.semantic is not None}
        self._latest = {
            (name, whose): known
            for (name, whose), known in self._latest.items()
            if whose == embedder and name in used
        }
        kept = {tier.name for _, tier in self._latest.values()}
        self._tiers = {
            name: one
            for name, one in self._tiers.items()
            if name in kept or one.pending or one.in_doubt or one.untold_pairs
        }
        for name, policy in policies.items():
            if policy.semantic is not None:
                await self.refresh(self.tier(name, policy.semantic, embedder=embedder))

    async def follow(self) -> None:
        """Keep in step with the store. Runs until cancelled."""
        while True:
            self._asked.clear()
            for tier in list(self._tiers.values()):
                await self.refresh(tier)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), _TELL_EVERY_S)

    async def refresh(self, tier: Tier) -> None:
        """Tell what was counted here, learn what others have, and make the transitions that follow.
        A store that fails is told the next time, if it has not heard it all the same."""
        async with self._in_order:
            await self._refresh(tier)

    async def _refresh(self, tier: Tier) -> None:
        try:
            if tier.untold_pairs:
                await self._tell_pairs(tier)
            totals = await self._told(tier)
            # Nothing was due when it was looked at last.
            while totals != tier.totals and (field := due(totals, tier.terms)) is not None:
                totals = await self._store.tally(tier.name, {field: 1})
            if over := folded(totals, starts_open=tier.terms.starts_open):
                totals = await self._store.tally(tier.name, over)
            num_pairs = totals.get(PAIRS, 0)
            if num_pairs != tier.num_pairs_seen:
                tier.wrong_pairs = await self._store.tally(_pairs(tier), {})
                tier.num_pairs_seen = num_pairs
        except StoreFault as fault:
            self._metrics.faults.labels("store").inc()
            log.warning("the audits cannot be told to the store: %s", fault)
            return
        before = tier.standing
        tier.learn(totals)
        _log_change(tier, before)

    async def _told(self, tier: Tier) -> dict[str, int]:
        """The totals with what was counted here. Raises StoreFault, and also when it is cancelled
        nothing is counted twice or lost."""
        if tier.in_doubt:
            heard = await self._store.tally(tier.name, {})
            if heard.get(self._slot, 0) == tier.num_told:
                tier.pending.update(tier.in_doubt)
            tier.in_doubt = Counter()
            tier.num_told = heard.get(self._slot, 0)
        add = tier.in_doubt = tier.pending
        tier.pending = Counter()
        totals = await self._store.tally(tier.name, {**add, self._slot: 1} if add else {})
        tier.in_doubt = Counter()
        tier.num_told = totals.get(self._slot, 0)
        return totals

    async def _tell_pairs(self, tier: Tier) -> None:
        """That these questions share no answer. Raises StoreFault: then they are told again."""
        told, known = tuple(tier.untold_pairs), tier.wrong_pairs
        latest = max(known.values(), default=0)
        numbered = {pair: latest + number for number, pair in enumerate(told, start=1)}
        forgotten = {pair: -at for pair, at in _oldest(tier, num_new=len(told)).items()}
        tier.wrong_pairs = await self._store.tally(_pairs(tier), {**forgotten, **numbered})
        tier.untold_pairs.difference_update(told)
        tier.pending[PAIRS] += len(told)


def _oldest(tier: Tier, *, num_new: int) -> dict[str, int]:
    """What has to be forgotten of a tier's pairs before new ones are remembered."""
    num_over = len(tier.wrong_pairs) + num_new - _MAX_PAIRS
    if num_over <= 0:
        return {}
    if not tier.is_full:
        tier.is_full = True
        log.warning(
            "policy %s: %d pairs are wrong; the oldest are forgotten", tier.policy, _MAX_PAIRS
        )
    return dict(heapq.nsmallest(num_over, tier.wrong_pairs.items(), key=lambda pair: pair[1]))


def _pairs(tier: Tier) -> str:
    return f"{tier.name}:pairs"


def _log_change(tier: Tier, before: Standing | None) -> None:
    now = tier.standing
    if now is None or before is None or (before.state, before.step) == (now.state, now.step):
        return
    log.warning(
        "policy %s, by meaning: %s, was %s; %d of %d audited were wrong, %.2f more asked for",
        tier.policy,
        now.state,
        before.state,
        before.counts.stored_only,
        before.counts.total,
        now.raised,
    )
