"""May the answer to one prompt be served for another? Pure and deterministic."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from index.demand import CONTENT, WORD_ORDER, Demand, Thresholds, demands
from index.embedders.calibration import AS_IT_IS, Calibration
from index.guards.own import OwnRule
from index.guards.parse import GUARDS, Parsed, parse_both
from index.guards.slips import slipped

Profile = Literal["strict", "balanced", "intent"]

OWN = "own_rule"
"""The reason of a policy's own rules."""

_NEVER_SLIPS = frozenset(
    {"numbers", "units", "negation", "antonyms", "letters", "code", "quotes", "language"}
)
"""What a slip of the keyboard does not excuse: here a sign is all the difference."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy asks of a semantic hit."""

    thresholds: Thresholds
    guards: frozenset[str]
    """Names of the guards that are on."""
    own: tuple[OwnRule, ...] = ()
    """They hold whatever the profile, also between two spellings of one text."""
    calibration: Calibration = AS_IT_IS
    """What the embedder's similarities are worth; the thresholds are of that worth."""
    raised: float = 0.0
    """So much more is asked for than the thresholds say, in the same worth."""


STRICT = Thresholds(
    same=0.91,
    added=0.92,
    narrowed=0.97,
    decided=1.0,
    exchanged=0.92,
    reworded=0.91,
    per_sign=0.025,
    reordered=0.92,
    slip=0.60,
)
BALANCED = Thresholds(
    same=0.84,
    added=0.89,
    narrowed=0.95,
    decided=1.0,
    exchanged=0.90,
    reworded=0.86,
    per_sign=0.025,
    reordered=0.91,
    slip=0.60,
)
INTENT = Thresholds(
    same=0.79,
    added=0.79,
    narrowed=0.79,
    decided=0.79,
    exchanged=0.79,
    reworded=0.79,
    per_sign=0.0,
    reordered=0.79,
    slip=0.79,
)
"""Chosen on labelled pairs with all-MiniLM-L6-v2; `tests/benchmark/semantic.py` measures them."""

ALL_GUARDS = frozenset(guard.name for guard in GUARDS) | {CONTENT, WORD_ORDER}
"""Names that a policy can switch."""

_PROFILES = {
    "strict": Rules(thresholds=STRICT, guards=ALL_GUARDS),
    "balanced": Rules(thresholds=BALANCED, guards=ALL_GUARDS),
    "intent": Rules(thresholds=INTENT, guards=frozenset({"numbers", "negation"})),
}


def rules_for(
    profile: Profile,
    *,
    threshold: float | None = None,
    guards: Mapping[str, bool] | None = None,
    own: tuple[OwnRule, ...] = (),
    calibration: Calibration = AS_IT_IS,
) -> Rules:
    """The rules of a profile, changed by a policy.

    `threshold` is the least similarity whatever the words say, a cosine of the embedder. Above
    that of `strict` it narrows all others in proportion, on every profile alike, so that they stay
    in their order. `guards` switches single guards on or off by name; `own` adds rules.
    """
    rules = _PROFILES[profile]
    switched = guards or {}
    on = {name for name, is_on in switched.items() if is_on}
    return Rules(
        thresholds=_scaled(rules.thresholds, None if threshold is None else calibration(threshold)),
        guards=(rules.guards | on) - (switched.keys() - on),
        own=own,
        calibration=calibration,
    )


def raised_by(rules: Rules, by: float) -> Rules:
    """The same rules, asking for `by` more similarity."""
    return msgspec.structs.replace(rules, raised=by) if by else rules


def _scaled(default: Thresholds, threshold: float | None) -> Thresholds:
    if threshold is None:
        return default
    # What is left up to 1 shrinks as a whole; a lower threshold leaves the others where they are.
    share = min(1.0, (1 - threshold) / (1 - STRICT.same))

    def moved(least: float) -> float:
        return max(threshold, 1 - (1 - least) * share)

    return Thresholds(
        same=threshold,
        slip=threshold,
        added=moved(default.added),
        narrowed=moved(default.narrowed),
        decided=moved(default.decided),
        exchanged=moved(default.exchanged),
        reworded=moved(default.reworded),
        per_sign=default.per_sign * share,
        reordered=moved(default.reordered),
    )


class Accepted(msgspec.Struct, frozen=True, tag="accepted"):
    """The answer may be served."""

    similarity: float


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """`reason` is the name of a guard, or `similarity`."""

    reason: str


Verdict = Accepted | Refused


def judge(query: str, candidate: str, *, similarity: float, rules: Rules) -> Verdict:
    """Judge a candidate that was found by `similarity` (cosine of the two embeddings)."""
    if query == candidate:
        return Accepted(similarity)
    worth = rules.calibration(similarity) - rules.raised
    if not worth >= rules.thresholds.slip:  # nor one that is no number
        return Refused("similarity")
    a, b = parse_both(query, candidate)
    guards = rules.guards
    is_slip = _is_slip(a, b)
    if is_slip:
        guards &= _NEVER_SLIPS
    elif worth < rules.thresholds.same:
        return Refused("similarity")
    reason = _guarded(a, b, guards)
    if reason is None and any(rule.differs(query, candidate) for rule in rules.own):
        reason = OWN
    if reason is None and not is_slip:
        reason = _unmet(a, b, worth=worth, rules=rules)
    return Accepted(similarity) if reason is None else Refused(reason)


def strictest(query: str, candidate: str, *, rules: Rules) -> Demand | None:
    """What `judge` asks for between two texts, where no guard and no rule tells them apart: in the
    worth of the thresholds, without what is asked for on top (`Rules.raised`). None of a text and
    itself: nothing is asked for."""
    if query == candidate:
        return None
    a, b = parse_both(query, candidate)
    if _is_slip(a, b):
        return Demand(kind="slip", reason="similarity", least=rules.thresholds.slip)
    found = demands(a, b, rules.thresholds, rules.guards)
    return max(found, key=lambda one: (one.least, one.kind != "same"))


def _is_slip(a: Parsed, b: Parsed) -> bool:
    return slipped(a.squeezed, b.squeezed, words=a.words ^ b.words)


def _guarded(a: Parsed, b: Parsed, names: frozenset[str]) -> str | None:
    for guard, one, other in zip(GUARDS, a.features, b.features, strict=True):
        if one != other and guard.name in names:
            reason = guard.compare(one, other)
            if reason is not None:
                return reason
    return None


def _unmet(a: Parsed, b: Parsed, *, worth: float, rules: Rules) -> str | None:
    for demand in demands(a, b, rules.thresholds, rules.guards):
        if worth < demand.least:
            return demand.reason
    return None
