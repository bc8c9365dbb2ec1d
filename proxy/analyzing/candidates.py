"""Changes of a policy that may let more requests share an answer. Pure."""

from collections.abc import Iterator

import msgspec

from proxy.request.noise import KNOWN
from proxy.settings.config import Fold, Policy
from proxy.settings.units import Duration

_FOLDS: tuple[Fold, ...] = (
    "trim", "line_endings", "unicode", "collapse_spaces", "message_ids", "casefold",
)  # fmt: skip
_LOOK_FIRST: tuple[Fold, ...] = ("casefold",)
_PATTERNS = {
    "the date of today in a sentence of its own": (
        r"(?im)^.*\b(?:current date|today'?s date|today is|current time|the time is)\b.*$"
    ),
    "a date": r"\b\d{4}-\d\d-\d\d\b",
    "a time in Unix seconds or milliseconds": r"\b1[5-9]\d{8}(?:\d{3})?\b",
    "a long id in hex digits": r"\b[0-9a-f]{16,64}\b",
}
"""Found in many system prompts, but they may also be what is asked for."""
_LONGER_S = (86400, 7 * 86400)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One change. `is_safe`: it cannot make two questions one that are not; others are to be looked
    at by who knows the prompts."""

    name: str
    key: str
    """Of the policy: `strip`, `normalize` or `ttl`."""
    value: str
    """What is added to it, or takes its place."""
    is_safe: bool
    policy: Policy
    """With the change."""


def candidates_for(policy: Policy) -> Iterator[Candidate]:
    """All that the policy does not have yet."""
    for fold in _FOLDS:
        if fold not in policy.normalize:
            yield Candidate(
                name=f"normalize: {fold}",
                key="normalize",
                value=fold,
                is_safe=fold not in _LOOK_FIRST,
                policy=msgspec.structs.replace(policy, normalize=(*policy.normalize, fold)),
            )
    for name in KNOWN:
        if name not in policy.strip:
            yield _strip(policy, name=f"strip: {name}", value=name, is_safe=True)
    for name, pattern in _PATTERNS.items():
        if pattern not in policy.strip:
            yield _strip(policy, name=f"strip: {name}", value=pattern, is_safe=False)
    for seconds in _LONGER_S:
        if seconds > policy.ttl:
            ttl = Duration(seconds)
            longer = msgspec.structs.replace(policy, ttl=ttl)
            yield Candidate(
                name=f"ttl: {ttl}", key="ttl", value=str(ttl), is_safe=False, policy=longer
            )


def with_all(policy: Policy, chosen: tuple[Candidate, ...]) -> Policy:
    """The policy with all of them, of those that can go together: not with another TTL."""
    strip = tuple(one.value for one in chosen if one.key == "strip")
    folds = tuple(fold for fold in _FOLDS if any(one.value == fold for one in chosen))
    return msgspec.structs.replace(
        policy, strip=(*policy.strip, *strip), normalize=(*policy.normalize, *folds)
    )


def _strip(policy: Policy, *, name: str, value: str, is_safe: bool) -> Candidate:
    changed = msgspec.structs.replace(policy, strip=(*policy.strip, value))
    return Candidate(name=name, key="strip", value=value, is_safe=is_safe, policy=changed)
