"""May the answer to one prompt be served for another? Pure and deterministic."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from index.embedders.calibration import AS_IT_IS, Calibration
from index.guards.content import Difference, compare_content
from index.guards.own import OwnRule
from index.guards.parse import GUARDS, Parsed, parse
from index.guards.slips import slipped

Profile = Literal["strict", "balanced", "intent"]

CONTENT = "content"
WORD_ORDER = "word_order"
"""The two judgements over content words; switched by name like the guards."""

OWN = "own_rule"
"""The reason of a policy's own rules."""

_NEVER_SLIPS = frozenset(
    {"numbers", "units", "negation", "antonyms", "letters", "code", "quotes", "language"}
)
"""What a slip of the keyboard does not excuse: here a sign is all the difference."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Least cosine similarity by what the content words of the two prompts say."""

    same: float
    """Every content word has a counterpart."""
    added: float
    """One prompt has a word more."""
    narrowed: float
    """… and it is the last one (`… for children`)."""
    decided: float
    """… and the answer is yes or no, where every word decides; or rare words are exchanged."""
    exchanged: float
    """One word stands for another."""
    reworded: float
    """Both have words of their own, and one has several: no two questions that differ in a single
    thing, whose likeness would be that of all their other words."""
    per_sign: float
    """Asked in Chinese, where a word is a sign or two, in place of that: so much beyond `exchanged`
    or `added` for each further word."""
    reordered: float
    """The words they share stand in another order, and others differ: then the sentence may have
    been turned. Where no other word differs, another order is always refused; so it is in Chinese,
    where characters count as words and some always differ."""
    slip: float
    """The two are one text, mistyped."""


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
    a, b = parse(query), parse(candidate)
    guards = rules.guards
    is_slip = slipped(a.squeezed, b.squeezed, words=a.words ^ b.words)
    if is_slip:
        guards &= _NEVER_SLIPS
    elif worth < rules.thresholds.same:
        return Refused("similarity")
    reason = _guarded(a, b, guards)
    if reason is None and any(rule.differs(query, candidate) for rule in rules.own):
        reason = OWN
    if reason is None and not is_slip:
        reason = _measured(a, b, worth=worth, rules=rules)
    return Accepted(similarity) if reason is None else Refused(reason)


def _guarded(a: Parsed, b: Parsed, names: frozenset[str]) -> str | None:
    for guard, one, other in zip(GUARDS, a.features, b.features, strict=True):
        if one != other and guard.name in names:
            reason = guard.compare(one, other)
            if reason is not None:
                return reason
    return None


def _measured(a: Parsed, b: Parsed, *, worth: float, rules: Rules) -> str | None:
    difference = compare_content(a.content, b.content)
    if difference.reordered and WORD_ORDER in rules.guards:
        alone = difference.exchanged + difference.added == 0
        if alone or a.chinese or b.chinese or worth < rules.thresholds.reordered:
            return WORD_ORDER
    if CONTENT in rules.guards and worth < _asked(a, b, difference, rules.thresholds):
        return CONTENT
    return None


def _asked(a: Parsed, b: Parsed, difference: Difference, thresholds: Thresholds) -> float:
    num_further = difference.exchanged + difference.added - 1
    if num_further < 0:
        return thresholds.same
    chinese = a.chinese or b.chinese
    if difference.exchanged and not difference.named:
        first = thresholds.exchanged if chinese or not num_further else thresholds.reworded
    elif difference.named or a.yes_or_no or b.yes_or_no:
        return thresholds.decided
    else:
        first = thresholds.narrowed if difference.last else thresholds.added
    return first + thresholds.per_sign * num_further if chinese else first
