"""All counters at one time. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from prometheus_client import Metric

from proxy.observing.hitrate import HITS, hit_rate


class Buckets(msgspec.Struct, frozen=True, kw_only=True):
    """A histogram: `counts[i]` were no longer than `bounds_s[i]`; the last bound is infinite and
    left out."""

    bounds_s: tuple[float, ...] = ()
    counts: tuple[int, ...] = (0,)


_EMPTY = Buckets()
_SUMS = frozenset({"rejoinder_tokens_saved_total", "rejoinder_seconds_saved_total"})


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Sums since the start, of all processes."""

    at: float
    """Unix seconds."""
    requests: Mapping[str, int] = {}
    """By outcome."""
    cached: Buckets = _EMPTY
    """Seconds until the first byte of answers from the cache, and of all others."""
    forwarded: Buckets = _EMPTY
    tokens_saved: int = 0
    money_saved: Mapping[str, float] = {}
    """By currency of the price table."""
    seconds_saved: float = 0.0
    """By how much sooner answers from the cache began than they had taken to be made."""

    @property
    def hit_rate(self) -> float | None:
        """See `proxy.observing.hitrate`."""
        return hit_rate(self.requests)

    @property
    def saved(self) -> dict[str, Any]:
        """For people."""
        money = dict(self.money_saved)
        return {"tokens": self.tokens_saved, "seconds": self.seconds_saved, "money": money}


def sample_of(totals: Iterable[Metric], *, at: float) -> Sample:
    """From the metrics' families (`proxy.observing.metrics`)."""
    requests: dict[str, int] = defaultdict(int)
    latency = {True: _Adding(), False: _Adding()}
    sums: dict[str, float] = defaultdict(float)
    money: dict[str, float] = defaultdict(float)
    for family in totals:
        for one in family.samples:
            if one.name == "rejoinder_requests_total":
                requests[one.labels["outcome"]] += int(one.value)
            elif one.name == "rejoinder_first_byte_seconds_bucket":
                is_cached = one.labels["outcome"] in HITS
                latency[is_cached].add(float(one.labels["le"]), int(one.value))
            elif one.name == "rejoinder_money_saved_total":
                money[one.labels["currency"]] += one.value
            elif one.name in _SUMS:
                sums[one.name] += one.value
    return Sample(
        at=at,
        requests=dict(requests),
        cached=latency[True].buckets(),
        forwarded=latency[False].buckets(),
        tokens_saved=int(sums["rejoinder_tokens_saved_total"]),
        money_saved=dict(money),
        seconds_saved=sums["rejoinder_seconds_saved_total"],
    )


class _Adding:
    def __init__(self) -> None:
        self._counts: dict[float, int] = defaultdict(int)

    def add(self, bound_s: float, count: int) -> None:
        self._counts[bound_s] += count

    def buckets(self) -> Buckets:
        if not self._counts:
            return _EMPTY
        bounds = sorted(self._counts)
        return Buckets(
            bounds_s=tuple(bounds[:-1]), counts=tuple(self._counts[bound] for bound in bounds)
        )
