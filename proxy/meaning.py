"""From what a policy's config says about meaning to what the index decides by. Pure."""

from index.guards.own import OwnRule, rule_of_pattern, rule_of_words
from index.verdict import Rules, rules_for
from index.volatility import Patterns, patterns_of
from proxy.settings.semantic import Refusal, Semantic
from proxy.settings.volatile import Volatile


def rules_of_tier(tier: Semantic) -> Rules:
    """The verdict's rules of a semantic tier. The config was checked."""
    return rules_for(
        tier.profile,
        threshold=tier.threshold,
        guards={name: switch == "on" for name, switch in tier.guards.items()},
        own=tuple(map(_own_rule, tier.refuse)),
    )


def patterns_of_policy(volatile: Volatile) -> Patterns:
    """The patterns of volatile questions, the default ones among them. The config was checked."""
    return patterns_of(volatile.patterns, never=volatile.never)


def asks_classifier(tier: Semantic, volatile: Volatile) -> bool:
    """Whether the trained classifier has a say."""
    if volatile.classifier is not None:
        return volatile.classifier
    return tier.profile != "intent"


def _own_rule(refusal: Refusal) -> OwnRule:
    if refusal.pattern is not None:
        return rule_of_pattern(refusal.pattern)
    return rule_of_words(refusal.words)
