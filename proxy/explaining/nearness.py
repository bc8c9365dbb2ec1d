"""What stands between two questions: the guard that refuses, or the similarity that is asked for.
Pure."""

from index.verdict import Accepted, Refused, Rules, judge
from proxy.explaining.meanings import meaning_of
from proxy.explaining.views import NearView

_STEPS = 14
"""Of halving: to the fourth place."""


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
    return NearView(
        key=key,
        prompt=prompt,
        similarity=similarity,
        accepted=not reason,
        reason=reason,
        meaning=meaning_of(reason) if reason else "the two may share an answer",
        asked=_asked(query, prompt, rules),
    )


def _asked(query: str, prompt: str, rules: Rules) -> float | None:
    """The verdict asks for more or for less, never for a similarity in between: so it is halved."""

    def accepts(similarity: float) -> bool:
        verdict = judge(query, prompt, similarity=similarity, rules=rules)
        return isinstance(verdict, Accepted)

    low, high = 0.0, 1.0
    if not accepts(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if accepts(middle) else (middle, high)
    return round(high, 4)
