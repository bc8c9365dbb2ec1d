"""Questions that missed although a similar one was stored, and what another threshold would do."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from index.verdict import Accepted, Rules, judge
from proxy.admin.office import Office
from proxy.lookup.meaning import rules_of_tiers
from proxy.observing.recent import MAX_REQUESTS
from proxy.observing.seen import Seen
from proxy.outcome import Near
from proxy.processes.gathering import Recall
from proxy.settings.semantic import Semantic

_STEP = 0.005
_LOWEST = 0.5
_NUM_STEPS = 100
_MAX_SHOWN = 200
RulesOf = Callable[[Semantic], Rules]
"""See `proxy.lookup.meaning.rules_of_tiers`."""


class NearMiss(msgspec.Struct, frozen=True, kw_only=True):
    """A miss, and the stored question that came nearest to it."""

    request_id: str
    at: float
    tenant: str
    prompt: str | None
    """What was asked; null when it was not stored, or no longer is."""
    near_key: str
    near_prompt: str
    similarity: float
    reason: str
    """Why it was refused: a guard, `similarity`, or what was wrong with the entry."""
    served_up_to: float | None
    """The highest `threshold` with which the answer would have been given; null: with none, or it
    cannot be told."""


class NearPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first. `threshold`: the one in force. `lowest`: of what is called near."""

    policy: str | None
    policies: tuple[str, ...]
    """Those that answer by meaning."""
    threshold: float | None
    lowest: float
    misses: tuple[NearMiss, ...]


@get("/dashboard/near")
async def near(
    office: NamedDependency[Office],
    policy: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=_MAX_SHOWN)] = 100,
) -> NearPage:
    """The near misses of a policy among the requests of lately, of all processes, and behind them
    those of the request log. Without `policy` of the first that answers by meaning."""
    tiers = {name: one.semantic for name, one in office.config().policies.items() if one.semantic}
    name = policy if policy in tiers else next(iter(tiers), None)
    if name is None:
        return NearPage(policy=None, policies=(), threshold=None, lowest=_LOWEST, misses=())
    seen = await _seen(office, name, limit)
    prompts = [await _prompt(office, one.key) for one in seen]
    rules_of = rules_of_tiers(office.config().embedder)
    # Two texts are parsed for each, some of them for the first time.
    misses = await asyncio.to_thread(_misses, seen, prompts, tiers[name], rules_of)
    rules = rules_of(tiers[name])
    return NearPage(
        policy=name,
        policies=tuple(tiers),
        threshold=rules.calibration.cosine_of(rules.thresholds.same),
        lowest=_LOWEST,
        misses=misses,
    )


async def _seen(office: Office, policy: str, limit: int) -> list[Seen]:
    def fits(one: Seen) -> bool:
        return one.policy == policy and _is_near(one)

    everything = (await office.peers().ask(Recall(limit=MAX_REQUESTS))).requests
    seen = list(filter(fits, everything))[:limit]
    if len(seen) < limit:
        known = {(one.tenant, one.request_id, one.at) for one in seen}
        logged = await office.records.journal.latest(fits, limit=limit)
        seen += [one for one in logged if (one.tenant, one.request_id, one.at) not in known]
    return seen[:limit]


def _is_near(seen: Seen) -> bool:
    return bool(seen.near) and seen.near[0].similarity >= _LOWEST


def _misses(
    seen: Sequence[Seen], prompts: Sequence[str | None], tier: Semantic, rules_of: RulesOf
) -> tuple[NearMiss, ...]:
    ladder = tuple(ladder_of(tier, rules_of))
    now = rules_of(tier)
    return tuple(_miss(one, prompt, now, ladder) for one, prompt in zip(seen, prompts, strict=True))


def _miss(
    seen: Seen, prompt: str | None, now: Rules, ladder: Sequence[tuple[float, Rules]]
) -> NearMiss:
    best = seen.near[0]
    return NearMiss(
        request_id=seen.request_id,
        at=seen.at,
        tenant=seen.tenant,
        prompt=prompt,
        near_key=best.key,
        near_prompt=best.prompt,
        similarity=best.similarity,
        reason=best.reason,
        served_up_to=None
        if not (prompt and best.prompt)
        else served_up_to(prompt, best, now, ladder),
    )


def served_up_to(
    prompt: str, near: Near, now: Rules, ladder: Sequence[tuple[float, Rules]]
) -> float | None:
    """The highest threshold of the ladder at which the policy's rules accept the pair. None also
    where those of `now` do: then it was refused for what no threshold changes."""
    if _accepts(prompt, near, now):
        return None
    low, high = 0, len(ladder)
    while low < high:  # a lower threshold never refuses more
        middle = (low + high) // 2
        if _accepts(prompt, near, ladder[middle][1]):
            low = middle + 1
        else:
            high = middle
    return ladder[low - 1][0] if low else None


def _accepts(prompt: str, near: Near, rules: Rules) -> bool:
    verdict = judge(prompt, near.prompt, similarity=near.similarity, rules=rules)
    return isinstance(verdict, Accepted)


def ladder_of(tier: Semantic, rules_of: RulesOf) -> Iterator[tuple[float, Rules]]:
    """Thresholds (cosines of the embedder), the lowest first, and the policy's rules with each."""
    for step in range(_NUM_STEPS + 1):
        threshold = round(_LOWEST + step * _STEP, 3)
        yield threshold, rules_of(msgspec.structs.replace(tier, threshold=threshold))


async def _prompt(office: Office, key: str) -> str | None:
    if not key:
        return None
    examined = await office.store.examine(key)
    return None if examined.entry is None else examined.entry.prompt
