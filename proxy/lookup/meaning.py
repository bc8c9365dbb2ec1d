"""From what a policy's config says about meaning to what the index decides by. Pure."""

from collections.abc import Callable
from functools import partial

import msgspec

from index.embedders.calibration import AS_IT_IS, Calibration, calibration_of
from index.guards.own import OwnRule, rule_of_pattern, rule_of_words
from index.verdict import Rules, rules_for
from index.volatility.examples import Examples
from index.volatility.rules import Patterns, patterns_of
from proxy.settings.config import Policy
from proxy.settings.embedder import Embedder
from proxy.settings.semantic import Refusal, Semantic
from proxy.settings.volatile import Volatile


def calibration_for(embedder: Embedder | None) -> Calibration:
    """What the embedder's similarities are worth. Those of one that is not known are taken as they
    are; the config's checks see to it that nothing is served by them unproven."""
    return (calibration_of(embedder.model) if embedder is not None else None) or AS_IT_IS


def rules_of_tiers(embedder: Embedder | None) -> Callable[[Semantic], Rules]:
    """What makes the verdict's rules of the tiers of a config with this embedder."""
    return partial(rules_of_tier, calibration=calibration_for(embedder))


def rules_of_tier(tier: Semantic, *, calibration: Calibration = AS_IT_IS) -> Rules:
    """The verdict's rules of a semantic tier. The config was checked."""
    return rules_for(
        tier.profile,
        threshold=tier.threshold,
        guards={name: switch == "on" for name, switch in tier.guards.items()},
        own=tuple(map(_own_rule, tier.refuse)),
        calibration=calibration,
    )


def patterns_of_policy(policy: Policy) -> Patterns:
    """By what a policy knows volatile questions. The config was checked.

    What a question is about does not change: with the profile `intent` only the policy's own
    patterns count, unless its `never` asks for more.
    """
    is_about = policy.semantic is not None and policy.semantic.profile == "intent"
    volatile = policy.volatile
    own = patterns_of(volatile.patterns, never=volatile.never)
    return msgspec.structs.replace(own, rules=()) if is_about and not policy.never else own


def asks_classifier(tier: Semantic, volatile: Volatile) -> bool:
    """Whether the trained classifier has a say."""
    if volatile.classifier is not None:
        return volatile.classifier
    return tier.profile != "intent"


def examples_of(tier: Semantic, volatile: Volatile) -> Examples:
    """What the embedding of a question is compared with to know whether it is volatile."""
    return Examples(
        volatile=volatile.examples,
        stable=volatile.stable,
        classifier=asks_classifier(tier, volatile),
    )


def _own_rule(refusal: Refusal) -> OwnRule:
    if refusal.pattern is not None:
        return rule_of_pattern(refusal.pattern)
    return rule_of_words(refusal.words)
