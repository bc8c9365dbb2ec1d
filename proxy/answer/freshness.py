"""How long an answer is kept, and whether one that is kept may be served (RFC 9111, RFC 5861)."""

import math

import msgspec

from index.entry import Entry
from proxy.call import Directives
from proxy.settings.config import Policy

MOST_LATENCIES = 37.0
"""So many times as long as it took to be made, an answer is never due early: no chance that a float
of 53 bits can tell is smaller than exp(-37)."""


class Lifetime(msgspec.Struct, frozen=True, kw_only=True):
    """Unix seconds: fresh until `expires_at`, of use to someone until `keep_until`."""

    expires_at: float
    keep_until: float


class Fresh(msgspec.Struct, frozen=True, kw_only=True):
    """May be served. `ttl_s` is what remains."""

    age_s: float
    ttl_s: float


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """May be served in some cases only. `reasons`: `expired`, `max_age`, `soft_purged`."""

    age_s: float
    ttl_s: float
    """Negative where it has expired: for how long."""
    reasons: tuple[str, ...]
    may_serve_while_revalidating: bool
    may_serve_if_error: bool
    max_stale_ok: bool
    """The request itself said that it takes an answer as stale as this one."""


class Unusable(msgspec.Struct, frozen=True, kw_only=True):
    """May not be served, whatever happens. `reason`: `expired`, `max_age`, `soft_purged`."""

    reason: str


def lifetimes(
    policy: Policy,
    directives: Directives,
    *,
    now: float,
    jitter: float,
    upstream_s: float | None = None,
) -> Lifetime:
    """The times of an answer that is stored at `now`; `jitter` is random, in [0, 1).

    The request's own TTL counts where it has one, never beyond the policy's `max_ttl`. `upstream_s`
    is what the upstream says, where that is honoured: it stands in for the policy's TTL and bounds
    the request's. Jitter only shortens, so no answer outlives what was asked for.
    """
    said = policy.ttl if upstream_s is None else upstream_s
    asked = said if directives.ttl_s is None else directives.ttl_s
    if upstream_s is not None:
        asked = min(asked, upstream_s)
    ttl_s = min(asked, policy.max_ttl) * (1 - policy.jitter * jitter)
    window_s = max(policy.stale_while_revalidate, policy.stale_if_error)
    return Lifetime(expires_at=now + ttl_s, keep_until=now + ttl_s + window_s)


def judge(
    entry: Entry, *, now: float, directives: Directives, policy: Policy, soft_purged: bool
) -> Fresh | Stale | Unusable:
    """Whether a stored answer may be served to this request.

    A TTL that was lowered in the config, `max_ttl` too, holds for answers stored before. The
    windows of a soft-purged answer end when those of the same answer without the purge would. A
    request that names a `max-age` does not want anything older, so only its own `max-stale` helps.
    """
    age_s = max(0.0, now - entry.created_at)
    expires_at = min(entry.expires_at, entry.created_at + policy.max_ttl)
    ttl_s = expires_at - now
    max_age_s = directives.max_age_s
    too_old_s = 0.0 if max_age_s is None else age_s - max_age_s
    if ttl_s > 0 and too_old_s <= 0 and not soft_purged:
        return Fresh(age_s=age_s, ttl_s=ttl_s)
    reasons = tuple(
        reason
        for reason, holds in (
            ("expired", ttl_s <= 0),
            ("max_age", too_old_s > 0),
            ("soft_purged", soft_purged),
        )
        if holds
    )
    stale_s = max(-ttl_s, 0.0)
    within = too_old_s <= 0
    stale = Stale(
        age_s=age_s,
        ttl_s=ttl_s,
        reasons=reasons,
        may_serve_while_revalidating=within and _covers(policy.stale_while_revalidate, stale_s),
        may_serve_if_error=within and _covers(policy.stale_if_error, stale_s),
        max_stale_ok=directives.max_stale_s is not None
        and max(stale_s, too_old_s) <= directives.max_stale_s,
    )
    if stale.may_serve_while_revalidating or stale.may_serve_if_error or stale.max_stale_ok:
        return stale
    return Unusable(reason=reasons[0])


def is_due_early(hit: Fresh, *, latency_s: float, chance: float) -> bool:
    """Whether this reader refreshes an answer that is still fresh. `chance` is random, in (0, 1].

    The nearer the end and the longer an answer takes to make, the likelier, so that of many readers
    one is early enough and few are with it (Vattani, Chierichetti, Lowenstein: "Optimal
    probabilistic cache stampede prevention", VLDB 2015, with beta 1).
    """
    return -latency_s * math.log(chance) >= hit.ttl_s


def _covers(window_s: float, stale_s: float) -> bool:
    return window_s > 0 and stale_s <= window_s
