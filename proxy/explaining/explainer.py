"""Explains requests by the very functions that decide about them when they come."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, Raw

from index.store import Examined, Store
from index.verdict import Rules
from proxy.auditing.tier import Tier
from proxy.call import Call, Surface
from proxy.deciding import Decider
from proxy.explaining.costs import Costs
from proxy.explaining.exactness import exactness
from proxy.explaining.layout import layout_of
from proxy.explaining.meanings import meaning_of
from proxy.explaining.nearness import nearness
from proxy.explaining.past import past_of
from proxy.explaining.peeking import Peeking
from proxy.explaining.views import (
    ExactView,
    Explanation,
    MayView,
    NearView,
    Past,
    Reason,
    RouteView,
    TierView,
)
from proxy.lookup.cache import Cache
from proxy.lookup.found import Found
from proxy.lookup.servable import servable
from proxy.observing.seen import Seen
from proxy.outcome import Bypass, Near, Outcome, SemanticHit, word
from proxy.question import Question
from proxy.request.invalidation import implicit_tags

_MAX_INPUTS = 100


class Explainer:
    """Of one config. Looks at store, index and audits, and changes nothing in them."""

    def __init__(
        self,
        *,
        decider: Decider,
        cache: Cache,
        store: Store,
        costs: Costs,
        clock: Callable[[], float],
    ) -> None:
        self._decider = decider
        self._cache = cache
        self._store = store
        self._costs = costs
        self._clock = clock

    async def explain(self, call: Call) -> Explanation:
        """As if it came now. Raises ClientError where no route leads, StoreFault."""
        question = self._decider.decide(call)
        if question.fingerprint is None:
            bypass = Bypass(reasons=question.eligibility.reasons)
            return self._explanation(question, bypass, bypass.reasons)
        found = await self._cache.over(Peeking(self._store)).find(question)
        if found.barred is not None:
            bypass = Bypass(reasons=(found.barred,))
            return self._explanation(question, bypass, bypass.reasons)
        explanation = self._explanation(question, _hit(question, found), found.reasons)
        return await self._with_lookups(explanation, question, found)

    def past(self, call: Call, seen: Seen) -> Past:
        """Why the call became what was seen of it. Raises ClientError where no route leads."""
        question = self._decider.decide(call)
        prompt = "" if question.fingerprint is None else question.fingerprint.prompt
        return past_of(seen, prompt=prompt, rules=self._cache.rules(question))

    def _explanation(
        self, question: Question, outcome: Outcome | None, reasons: Sequence[str]
    ) -> Explanation:
        call, route, eligibility = question.call, question.route, question.eligibility
        implicit = implicit_tags(
            call,
            route=route.name,
            policy_name=route.policy_name or "",
            model=route.model,
            subjects=question.subjects,
        )
        layout = layout_of(question, self._decider)
        fingerprint = question.fingerprint
        return Explanation(
            now=self._clock(),
            tenant=call.caller.tenant,
            surface=call.surface.value,
            route=RouteView(
                name=route.name,
                upstreams=tuple(one.name for one in route.upstreams),
                model=route.model,
                mode=route.mode,
                policy=route.policy_name,
            ),
            may=MayView(
                read=eligibility.read,
                write=eligibility.write,
                semantic=eligibility.semantic,
                reasons=_reasons(eligibility.reasons),
            ),
            outcome="miss" if outcome is None else word(outcome),
            reasons=_reasons(reasons),
            canonical=UNSET if fingerprint is None else Raw(fingerprint.canonical),
            left_out=layout.left_out,
            folded=layout.folded,
            parts=layout.parts,
            key=question.key,
            scope="" if fingerprint is None else fingerprint.scope,
            prompt="" if fingerprint is None else fingerprint.prompt,
            tags=question.tags,
            implicit_tags=implicit,
            cost=self._costs.of(question, None),
        )

    async def _with_lookups(
        self, explanation: Explanation, question: Question, found: Found
    ) -> Explanation:
        tags = (*question.tags, *explanation.implicit_tags)
        examined = await self._store.examine(question.key, tags=tags)
        return msgspec.structs.replace(
            explanation,
            exact=exactness(question, examined, now=explanation.now),
            inputs=await self._inputs(question, tags),
            near=_near(question, found, self._cache.rules(question)),
            tier=_tier(self._cache.tier(question)),
            cost=self._costs.of(question, _stored(examined)),
        )

    async def _inputs(self, question: Question, tags: Sequence[str]) -> tuple[ExactView, ...]:
        if question.call.surface is not Surface.EMBEDDINGS:
            return ()
        pieces = self._decider.pieces(question)
        if len(pieces) < 2:
            return ()
        now = self._clock()
        return tuple([
            exactness(piece, await self._store.examine(piece.key, tags=tags), now=now)
            for piece in pieces[:_MAX_INPUTS]
        ])  # fmt: skip


def _hit(question: Question, found: Found) -> Outcome | None:
    return found.hit or servable(question, found)


def _stored(examined: Examined) -> tuple[int, int] | None:
    entry = examined.entry
    return None if entry is None else (entry.input_tokens, entry.output_tokens)


def _near(question: Question, found: Found, rules: Rules | None) -> tuple[NearView, ...]:
    fingerprint = question.fingerprint
    if fingerprint is None or rules is None:
        return ()
    accepted = found.hit if isinstance(found.hit, SemanticHit) else found.withheld
    near = [_judged(fingerprint.prompt, one, rules) for one in found.near]
    if accepted is not None and all(one.key != accepted.entry.key for one in found.near):
        near.append(
            nearness(
                fingerprint.prompt,
                key=accepted.entry.key,
                prompt=accepted.entry.prompt,
                similarity=accepted.similarity,
                rules=rules,
            )
        )
    return tuple(near)


def _judged(query: str, near: Near, rules: Rules) -> NearView:
    return nearness(
        query,
        key=near.key,
        prompt=near.prompt,
        similarity=near.similarity,
        rules=rules,
        refused=near.reason,
    )


def _tier(tier: Tier | None) -> TierView | None:
    if tier is None or tier.standing is None:
        return None
    now = tier.standing
    bound: float | Literal["unproven"] = now.upper if now.is_proven else "unproven"
    return TierView(state=now.state, raised=now.raised, bound=bound)


def _reasons(words: Sequence[str]) -> tuple[Reason, ...]:
    return tuple(Reason(word=one, meaning=meaning_of(one)) for one in words)
