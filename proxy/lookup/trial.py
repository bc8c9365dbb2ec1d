"""The candidates of a search by meaning, tried one after the other until one is accepted."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from index.entry import Entry
from index.nearest.vectorplace import Candidate
from index.semantic import Semantic, Sought
from index.store import Lookup
from index.verdict import Rules
from proxy.answer.freshness import Fresh, Stale, Unusable, judge
from proxy.auditing.tier import KNOWN_WRONG, Tier, mark_of
from proxy.lookup.found import Found
from proxy.lookup.refusal import near_of, refusal, rules_now
from proxy.outcome import Near, SemanticHit
from proxy.question import Question


class Get(Protocol):
    """A look into the store; None where it failed."""

    async def __call__(self, key: str, *, now: float, tags: tuple[str, ...]) -> Lookup | None: ...


class Trial:
    """Of one question."""

    def __init__(
        self,
        question: Question,
        sought: Sought,
        *,
        tier: Tier | None,
        semantic: Semantic,
        get: Get,
        clock: Callable[[], float],
    ) -> None:
        self._question = question
        self._sought = sought
        self._tier = tier
        self._semantic = semantic
        self._get = get
        self._clock = clock

    async def first_accepted(self, found: Found) -> Found:
        """With the hit, and what was refused before it; without one, with the first candidate that
        audits alone refuse."""
        asked, usual = rules_now(self._question, self._tier), self._question.rules
        near: list[Near] = []
        withheld = None
        for candidate in self._sought.candidates:
            tried = await self._tried(candidate, asked)
            if not isinstance(tried, str):
                return msgspec.structs.replace(found, hit=tried, near=tuple(near))
            near.append(near_of(candidate, tried))
            if withheld is None and usual is not None and usual != asked:
                tried = await self._tried(candidate, usual)
                withheld = None if isinstance(tried, str) else tried
        return msgspec.structs.replace(found, withheld=withheld, near=tuple(near))

    async def _tried(self, candidate: Candidate, rules: Rules) -> SemanticHit | str:
        """Judged by the index's estimate, then by the embedding that the entry itself carries."""
        question = self._question
        reason = refusal(question, candidate, candidate.similarity, rules)
        if reason is not None:
            return reason
        hit = await self._marked(candidate)
        if isinstance(hit, str):
            return hit
        return refusal(question, candidate, hit.similarity, rules) or hit

    async def _marked(self, candidate: Candidate) -> SemanticHit | str:
        tier = self._tier
        if tier is None or tier.standing is None:
            return await self._confirmed(candidate)
        assert self._question.fingerprint is not None
        asked = self._question.fingerprint
        mark = mark_of(tier, scope=asked.scope, one=asked.prompt, other=candidate.prompt)
        if mark is None:
            return KNOWN_WRONG
        found = await self._confirmed(candidate)
        return found if isinstance(found, str) else msgspec.structs.replace(found, mark=mark)

    async def _confirmed(self, candidate: Candidate) -> SemanticHit | str:
        """The candidate's entry, if it is still there, of this scope, unpurged and fresh."""
        question, now = self._question, self._clock()
        lookup = await self._get(candidate.key, now=now, tags=question.tags)
        if lookup is None:
            return "store_fault"
        entry = lookup.entry
        if entry is None:
            return lookup.reason
        assert question.fingerprint is not None
        if entry.scope != question.fingerprint.scope or entry.prompt != candidate.prompt:
            return "replaced"
        similarity = self._semantic.confirm(self._sought.embedding or b"", entry)
        if similarity is None:
            return "replaced"
        match freshness_of(lookup, entry, question, now=now):
            case Fresh(age_s=age_s, ttl_s=ttl_s):
                return SemanticHit(entry=entry, age_s=age_s, ttl_s=ttl_s, similarity=similarity)
            case Stale():
                # Never served stale: two uncertainties at once are one too many.
                return "stale"
            case unusable:
                return unusable.reason


def freshness_of(
    lookup: Lookup, entry: Entry, question: Question, *, now: float
) -> Fresh | Stale | Unusable:
    """Whether an entry that was looked up may be served to a question of a cached route."""
    policy = question.route.policy
    assert policy is not None
    return judge(
        entry,
        now=now,
        directives=question.call.directives,
        policy=policy,
        soft_purged=lookup.soft_purged,
    )
