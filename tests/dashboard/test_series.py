"""What happened between two times, from sums."""

import pytest
from prometheus_client import CollectorRegistry

from proxy.dashboard.sample import Buckets, Sample, sample_of
from proxy.dashboard.series import quantile_ms, series, whole
from proxy.observing.metrics import Metrics


def at(minute: int, **requests: int) -> Sample:
    return Sample(at=60.0 * minute, requests=requests)


def counts(samples, **more):
    bins = series(samples, **{"until": 299.0, "bin_s": 60, "num_bins": 5, **more})
    return [(bin.since, bin.requests) for bin in bins]


def test_a_bin_counts_what_came_in_it():
    samples = [at(0), at(1, exact=3), at(2, exact=3), at(3, exact=5, miss=1)]
    assert counts(samples)[:3] == [(0, {"exact": 3}), (60, {}), (120, {"exact": 2, "miss": 1})]


def test_the_last_bin_ends_with_the_sample_of_now():
    samples = [at(4, miss=1), Sample(at=299.0, requests={"miss": 4})]
    assert counts(samples)[-1] == (240, {"miss": 3})


def test_bins_before_the_first_sample_are_left_out():
    assert counts([at(3), at(4, miss=2)]) == [(120, {}), (180, {"miss": 2}), (240, {})]
    assert counts([]) == []
    assert whole([]) is None


def test_a_gap_without_samples_is_counted_where_it_ends():
    assert counts([at(0), at(3, exact=9)])[:3] == [(0, {}), (60, {}), (120, {"exact": 9})]


def test_a_quantile_lies_within_its_bucket():
    before = Buckets(bounds_s=(0.01, 0.1), counts=(0, 0, 0))
    after = Buckets(bounds_s=(0.01, 0.1), counts=(0, 10, 10))
    assert quantile_ms(before, after, 0.5) == pytest.approx(55)
    assert quantile_ms(after, after, 0.5) is None
    beyond = Buckets(bounds_s=(0.01, 0.1), counts=(0, 0, 10))
    assert quantile_ms(before, beyond, 0.5) == pytest.approx(100)


def test_hits_and_what_waited_for_an_upstream_are_measured_apart():
    metrics = Metrics()
    assert isinstance(metrics.registry, CollectorRegistry)
    for outcome, seconds in (("exact", 0.0004), ("stale", 0.0004), ("miss", 2.0), ("bypass", 2.0)):
        metrics.requests.labels("chat", outcome, "200").inc()
        metrics.latency.labels(outcome).observe(seconds)
    sample = sample_of(metrics.totals(), at=1.0)
    assert sample.requests == {"exact": 1, "stale": 1, "miss": 1, "bypass": 1}
    assert (sample.cached.counts[0], sample.cached.counts[-1]) == (2, 2)
    assert (sample.forwarded.counts[0], sample.forwarded.counts[-1]) == (0, 2)
