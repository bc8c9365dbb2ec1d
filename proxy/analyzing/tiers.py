"""Other ways of answering by meaning that a policy could take. Pure."""

import math
from collections.abc import Iterator, Mapping

import msgspec

from index.audit.standing import RAISE
from index.embedders.calibration import calibration_of
from index.verdict import Profile
from proxy.lookup.meaning import calibration_for, rules_of_tiers
from proxy.settings.config import Policy
from proxy.settings.embedder import Embedder
from proxy.settings.semantic import Semantic

Written = Mapping[str, str | float]
"""Keys of a policy's `semantic`, as a config has them."""

_PROFILES: tuple[Profile, ...] = ("strict", "balanced")
_THOUSANDTHS = 1000


class TierChange(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a policy's `semantic`. `is_safe`: nothing is answered by meaning before audits
    have proven that few enough answers are wrong."""

    written: Written
    is_safe: bool
    policy: Policy
    """With the change."""

    @property
    def name(self) -> str:
        """As a config has it."""
        keys = ", ".join(f"{key}: {value}" for key, value in self.written.items())
        return f"semantic: {{{keys}}}"


def tier_changes(policy: Policy, embedder: Embedder | None) -> Iterator[TierChange]:
    """A beginning in shadow where the policy does not answer by meaning; where it does, the
    profiles that it does not have, and a higher threshold."""
    if embedder is None:
        return
    tier = policy.semantic
    if tier is None:
        yield _changed(policy, _beginning(embedder), is_safe=True)
        return
    for profile in _PROFILES:
        if profile != tier.profile:
            yield _changed(policy, {"profile": profile}, is_safe=False)
    higher = _higher_threshold(tier, embedder)
    if higher is not None:
        yield _changed(policy, {"threshold": higher}, is_safe=False)


def _beginning(embedder: Embedder) -> Written:
    if calibration_of(embedder.model) is not None:
        return {"start": "shadow"}
    # The judge would have to know what the embedder's similarities are worth.
    return {"start": "shadow", "judge": "equal"}


def _higher_threshold(tier: Semantic, embedder: Embedder) -> float | None:
    worth = rules_of_tiers(embedder)(tier).thresholds.same + RAISE
    if worth >= 1:
        return None
    cosine = calibration_for(embedder).cosine_of(worth)
    # Rounded before: .9 may come as .9000000000000001.
    return math.ceil(round(cosine * _THOUSANDTHS, 6)) / _THOUSANDTHS


def _changed(policy: Policy, written: Written, *, is_safe: bool) -> TierChange:
    tier = msgspec.structs.replace(policy.semantic or Semantic(), **written)
    changed = msgspec.structs.replace(policy, semantic=tier)
    return TierChange(written=written, is_safe=is_safe, policy=changed)
