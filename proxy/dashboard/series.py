"""From sums to what happened between two times. Pure."""

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from proxy.dashboard.sample import Buckets, Sample


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """What was counted from `since` to `until` (Unix seconds). Latencies are until the first byte,
    interpolated between the histogram's bounds; null where nothing was counted."""

    since: float
    until: float
    requests: dict[str, int]
    cached_p50_ms: float | None
    cached_p95_ms: float | None
    forwarded_p50_ms: float | None
    forwarded_p95_ms: float | None
    tokens_saved: int
    money_saved: dict[str, float]
    """By currency."""
    seconds_saved: float


def series(
    samples: Sequence[Sample], *, until: float, bin_s: float, num_bins: int
) -> tuple[Bin, ...]:
    """Bins of `bin_s` seconds, the last of which contains `until`; those that end before the first
    sample are left out. `samples`: oldest first; a bin counts what came after the last sample
    before it, up to the last one in it."""
    last_edge = (until // bin_s + 1) * bin_s
    times = [one.at for one in samples]
    bins = []
    for number in range(num_bins, 0, -1):
        start, end = last_edge - number * bin_s, last_edge - (number - 1) * bin_s
        upper = bisect_right(times, end)
        if upper:
            lower = bisect_right(times, start)
            before = samples[lower - 1] if lower else samples[0]
            bins.append(_between(before, samples[upper - 1], since=start, until=end))
    return tuple(bins)


def whole(samples: Sequence[Sample]) -> Bin | None:
    """From the first sample to the last."""
    if not samples:
        return None
    return _between(samples[0], samples[-1], since=samples[0].at, until=samples[-1].at)


def quantile_ms(before: Buckets, after: Buckets, share: float) -> float | None:
    """As Prometheus' `histogram_quantile` does it: linear within a bucket; of what is beyond the
    last bound, that bound."""
    counts = _difference(before, after)
    wanted = share * counts[-1]
    if not counts[-1] or not after.bounds_s:
        return None
    lower_s, below = 0.0, 0
    for bound_s, count in zip(after.bounds_s, counts, strict=False):
        if count >= wanted and count > below:
            return 1000 * (lower_s + (bound_s - lower_s) * (wanted - below) / (count - below))
        lower_s, below = bound_s, count
    return 1000 * after.bounds_s[-1]


def _difference(before: Buckets, after: Buckets) -> tuple[int, ...]:
    if before.bounds_s != after.bounds_s:
        return after.counts
    return tuple(b - a for a, b in zip(before.counts, after.counts, strict=True))


def _between(before: Sample, after: Sample, *, since: float, until: float) -> Bin:
    return Bin(
        since=since,
        until=until,
        requests={
            outcome: count - before.requests.get(outcome, 0)
            for outcome, count in after.requests.items()
            if count > before.requests.get(outcome, 0)
        },
        cached_p50_ms=quantile_ms(before.cached, after.cached, 0.5),
        cached_p95_ms=quantile_ms(before.cached, after.cached, 0.95),
        forwarded_p50_ms=quantile_ms(before.forwarded, after.forwarded, 0.5),
        forwarded_p95_ms=quantile_ms(before.forwarded, after.forwarded, 0.95),
        tokens_saved=after.tokens_saved - before.tokens_saved,
        money_saved={
            currency: amount - before.money_saved.get(currency, 0.0)
            for currency, amount in after.money_saved.items()
        },
        seconds_saved=after.seconds_saved - before.seconds_saved,
    )
