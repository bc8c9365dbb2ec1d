"""Checks of what a policy says about answers by meaning and volatile questions. Pure."""

from collections.abc import Iterable, Iterator

from index.embedders.calibration import calibration_of
from index.verdict import ALL_GUARDS
from index.volatility.ownpattern import any_in, own_pattern
from proxy.settings.config import Policy
from proxy.settings.embedder import Embedder
from proxy.settings.finding import Finding
from proxy.settings.tree import Path, suggest


def check_meaning(policy: Policy, path: Path) -> Iterator[Finding]:
    """Guards exist, patterns are regular expressions, and examples have somebody to read them."""
    semantic, volatile = policy.semantic, policy.volatile
    if semantic is not None:
        for name in semantic.guards:
            if name not in ALL_GUARDS:
                message = f"no guard is called `{name}`{suggest(name, ALL_GUARDS)}"
                yield Finding(path=(*path, "semantic", "guards", name), message=message)
        for place, refusal in enumerate(semantic.refuse):
            if refusal.pattern is not None:
                yield from _pattern(
                    refusal.pattern, (*path, "semantic", "refuse", place, "pattern")
                )
    yield from _patterns(volatile.patterns, (*path, "volatile", "patterns"))
    yield from _patterns(volatile.never, (*path, "volatile", "never"))
    for name in ("examples", "stable"):
        if getattr(volatile, name) and semantic is None:
            message = "examples are compared by meaning, and the policy has no `semantic`"
            yield Finding(path=(*path, "volatile", name), message=message)


def check_worth(policy: Policy, embedder: Embedder | None, path: Path) -> Iterator[Finding]:
    """With an embedder whose similarities were never measured, nothing is served on the word of the
    profiles' thresholds, and no audit believes them."""
    semantic = policy.semantic
    if semantic is None or embedder is None or calibration_of(embedder.model) is not None:
        return
    unknown = f"what similarities of `{embedder.model}` are worth is not known: "
    if semantic.threshold is None and semantic.start == "open":
        message = unknown + "give `threshold`, or `start: shadow` to have it audited first"
        yield Finding(path=(*path, "semantic"), message=message)
    if semantic.audit and semantic.judge == "embedding":
        message = unknown + "let audits be judged by `judge: equal` or by a model"
        yield Finding(path=(*path, "semantic"), message=message)


def _patterns(patterns: Iterable[str], path: Path) -> Iterator[Finding]:
    for place, pattern in enumerate(patterns):
        yield from _pattern(pattern, (*path, place))


def _pattern(pattern: str, path: Path) -> Iterator[Finding]:
    try:
        finds_nothing = any_in((own_pattern(pattern),), "")
    except ValueError as error:
        yield Finding(path=path, message=f"not a regular expression: {error}")
        return
    if finds_nothing:
        yield Finding(path=path, message="the pattern also finds nothing at all, everywhere")
