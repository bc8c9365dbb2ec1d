"""What stands between two questions: the guard that refuses, or the similarity that is asked for.
Pure."""

import math
from collections.abc import Iterator

from index.demand import CONTENT, WORD_ORDER, Demand
from index.embedders.calibration import AS_IT_IS
from index.verdict import Refused, Rules, judge, strictest
from proxy.explaining.meanings import DEMANDS, meaning_of
from proxy.explaining.views import NearView, Reason

_BY_SIMILARITY = frozenset({"similarity", CONTENT, WORD_ORDER})
"""Reasons that go by what is asked for; the others are guards' and a policy's own rules'."""


def nearness(
    query: str,
    *,
    key: str,
    prompt: str,
    similarity: float,
    rules: Rules,
    refused: str | None = None,
) -> NearView:
    """Judge a stored question. `refused`: why it was refused although the verdict accepts it."""
    verdict = judge(query, prompt, similarity=similarity, rules=rules)
    reason = verdict.reason if isinstance(verdict, Refused) else refused or ""
    demand = strictest(query, prompt, rules=rules)
    best = judge(query, prompt, similarity=1.0, rules=rules)
    is_guarded = isinstance(best, Refused) and best.reason not in _BY_SIMILARITY
    return NearView(
        key=key,
        prompt=prompt,
        similarity=similarity,
        accepted=not reason,
        reason=reason,
        meaning=meaning_of(reason) if reason else "the two may share an answer",
        asked=None if isinstance(best, Refused) else _asked(demand, rules),
        why=() if demand is None or is_guarded else tuple(_why(demand, rules)),
    )


def _asked(demand: Demand | None, rules: Rules) -> float:
    if demand is None:
        return 0.0
    return round(rules.calibration.cosine_of(demand.least + rules.raised), 4)


def _why(demand: Demand, rules: Rules) -> Iterator[Reason]:
    worth = demand.least + rules.raised
    least = f"{demand.least:.3g}" if math.isfinite(worth) else "no similarity suffices"
    yield Reason(word=demand.kind, meaning=f"{DEMANDS[demand.kind]}: {least}")
    if not math.isfinite(worth):
        return
    if rules.raised:
        more = f"audits found wrong answers: {rules.raised:.3g} more"
        yield Reason(word="tightened", meaning=more)
    if rules.calibration != AS_IT_IS and worth <= 1:
        cosine = rules.calibration.cosine_of(worth)
        what = f"of this embedder {cosine:.4f} is worth no more than {worth:.3g}"
        yield Reason(word="calibration", meaning=what)
