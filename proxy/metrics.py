"""Counters for Prometheus. One registry an application, so that two can live in one process."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from proxy.upstreams.pool import ServerState

_LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 120)


class Metrics:
    """What is counted. Labels have few values: never a key, a prompt or a tenant's credential."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "rejoinder_requests_total",
            "Requests to the cached surfaces, by what became of them.",
            ("surface", "outcome", "status"),
            registry=self.registry,
        )
        self.reasons = Counter(
            "rejoinder_reasons_total",
            "Why requests were not answered from the cache.",
            ("outcome", "reason"),
            registry=self.registry,
        )
        self.latency = Histogram(
            "rejoinder_first_byte_seconds",
            "Time until the answer began.",
            ("outcome",),
            buckets=_LATENCY_S,
            registry=self.registry,
        )
        self.tokens_saved = Counter(
            "rejoinder_tokens_saved_total",
            "Tokens of answers that came from the cache.",
            ("model", "direction"),
            registry=self.registry,
        )
        self.attempts = Counter(
            "rejoinder_upstream_attempts_total",
            "Requests sent to upstreams, by their result.",
            ("upstream", "result"),
            registry=self.registry,
        )
        self.recordings = Counter(
            "rejoinder_recordings_total",
            "Answers of upstreams, by whether they were kept and why not.",
            ("result",),
            registry=self.registry,
        )
        self.faults = Counter(
            "rejoinder_cache_faults_total",
            "Faults of the cache that became misses.",
            ("part",),
            registry=self.registry,
        )
        self.purges = Counter(
            "rejoinder_purges_total", "Purges.", ("kind",), registry=self.registry
        )

    def attempted(self, upstream: str, result: str) -> None:
        """Count an attempt at an upstream; `result` is one of few words."""
        self.attempts.labels(upstream, result).inc()

    def watch(self, servers: Callable[[], Iterable[ServerState]]) -> None:
        """Show how the servers of the upstreams are doing, asked whenever the metrics are."""
        self.registry.register(_Servers(servers))

    def by_outcome(self) -> dict[str, int]:
        """Requests so far by outcome."""
        counts: dict[str, int] = {}
        for metric in self.requests.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    outcome = sample.labels["outcome"]
                    counts[outcome] = counts.get(outcome, 0) + int(sample.value)
        return counts

    def exposition(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


class _Servers(Collector):
    """Gauges of the upstreams' servers."""

    def __init__(self, servers: Callable[[], Iterable[ServerState]]) -> None:
        self._servers = servers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = ("upstream", "server")
        in_flight = GaugeMetricFamily(
            "rejoinder_upstream_in_flight",
            "Requests at a server whose answers have not ended.",
            labels=labels,
        )
        left_alone = GaugeMetricFamily(
            "rejoinder_upstream_left_alone",
            "1 while nothing is sent to a server since most requests to it failed.",
            labels=labels,
        )
        for state in self._servers():
            in_flight.add_metric((state.upstream, state.server), state.in_flight)
            left_alone.add_metric((state.upstream, state.server), float(state.left_alone))
        yield in_flight
        yield left_alone

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: without it the registry would collect once at the registration."""
        return iter(())
