"""Counters for Prometheus. One registry an application, so that two can live in one process.

Several workers keep their counters in files that all of them read, each in its own (the library's
multiprocess mode, which `proxy.processes.worker` turns on): whichever is asked has the sums, and a
worker that is started again goes on counting where it was. Gauges are of now and cannot be added
up: each worker is asked for its own, and they carry its number.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from proxy.call import Usage
from proxy.observing.names import Names
from proxy.processes.counts import Counts, Gauge
from proxy.upstreams.pool import ServerState

T = TypeVar("T")

_NAMES = "models"
LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10, 30, 120)


class Metrics:
    """What is counted. Labels have few values: never a key, a prompt or a tenant's credential."""

    def __init__(self, *, folder: str | None = None) -> None:
        """`folder`: where the workers keep their counters; None where there is one process."""
        self.registry = CollectorRegistry()
        self.names = Names(None if folder is None else Path(folder, _NAMES))
        """Of models, in labels."""
        self._folder = folder
        self._watched: list[Collector] = []
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
            buckets=LATENCY_S,
            registry=self.registry,
        )
        self.phases = Histogram(
            "rejoinder_phase_seconds",
            "Where the time of requests went: `receive` (read, decode, decide), `lookup`, `embed`"
            " (and search), `upstream` (until the last attempt was answered: the first event of a"
            " stream, the whole of another answer), `total` (until the last byte was sent).",
            ("outcome", "phase"),
            buckets=LATENCY_S,
            registry=self.registry,
        )
        self.tokens_saved = Counter(
            "rejoinder_tokens_saved_total",
            "Tokens of answers that came from the cache, or from another request in flight.",
            ("model", "policy", "direction"),
            registry=self.registry,
        )
        self.money_saved = Counter(
            "rejoinder_money_saved_total",
            "What these tokens would have cost, by the config's `prices`.",
            ("model", "policy", "currency"),
            registry=self.registry,
        )
        self.money_spent = Counter(
            "rejoinder_money_spent_total",
            "What the upstreams' whole answers cost, by the config's `prices`.",
            ("model", "policy", "currency"),
            registry=self.registry,
        )
        self.seconds_saved = Counter(
            "rejoinder_seconds_saved_total",
            "By how much sooner answers from the cache began than they had taken to be made.",
            ("model", "policy"),
            registry=self.registry,
        )
        self.attempts = Counter(
            "rejoinder_upstream_attempts_total",
            "Requests sent to upstreams, by their result.",
            ("upstream", "result"),
            registry=self.registry,
        )
        self.upstream_tokens = Counter(
            "rejoinder_upstream_tokens_total",
            "Tokens of answers, kept or not, as the upstreams counted them. `cached` is the"
            " part of `input` that they took from their own prompt caches.",
            ("upstream", "kind"),
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
        self.audits = Counter(
            "rejoinder_audits_total",
            "Answers given by meaning that were compared with fresh ones, by who was the odd one"
            " out; `failed`: no judgement was to be had, `skipped`: too many at once.",
            ("policy", "result"),
            registry=self.registry,
        )
        self.feedback = Counter(
            "rejoinder_feedback_total",
            "What users said of answers given by meaning.",
            ("policy", "verdict"),
            registry=self.registry,
        )
        self.evictions = Counter(
            "rejoinder_evictions_total",
            "Answers that had to make room in the store.",
            registry=self.registry,
        )
        self.access_lines_lost = Counter(
            "rejoinder_access_log_lost_total",
            "Lines of the access log that could not be written.",
            registry=self.registry,
        )
        self.record_lines_lost = Counter(
            "rejoinder_request_log_lost_total",
            "Lines of the request log that could not be written.",
            registry=self.registry,
        )
        self.purges = Counter(
            "rejoinder_purges_total", "Purges.", ("kind",), registry=self.registry
        )
        self.empty_purges = Counter(
            "rejoinder_empty_purges_total",
            "Purges that covered no answer: of a tag, perhaps, that no answer carries.",
            registry=self.registry,
        )

    def attempted(self, upstream: str, result: str) -> None:
        """Count an attempt at an upstream; `result` is one of few words."""
        self.attempts.labels(upstream, result).inc()

    def counted(self, upstream: str, usage: Usage) -> None:
        """Tokens that an upstream counted for an answer."""
        for kind, tokens in (
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cached", usage.cached_tokens),
        ):
            if tokens:
                self.upstream_tokens.labels(upstream, kind).inc(tokens)

    def watch(self, servers: Callable[[], Iterable[ServerState]]) -> None:
        """Show how the servers of the upstreams are doing, asked whenever the metrics are."""
        self.show(_Servers(servers))

    def show(self, collector: Collector) -> None:
        """Show gauges of a part that collects them itself."""
        self._watched.append(collector)
        self.registry.register(collector)

    def totals(self) -> Iterable[Metric]:
        """What was counted so far, of all processes together."""
        if self._folder is not None:
            return self._counters()
        return [metric for metric in self.registry.collect() if metric.type != "gauge"]

    def gauges(self) -> tuple[Gauge, ...]:
        """What is watched, as it is now in this process."""
        return tuple(
            Gauge(
                name=family.name,
                help=family.documentation,
                labels=dict(sample.labels),
                value=sample.value,
            )
            for collector in self._watched
            for family in collector.collect()
            for sample in family.samples
        )

    def exposition(self, counts: Sequence[Counts]) -> bytes:
        """Prometheus' text format. `counts`: of all processes."""
        if self._folder is None:
            return generate_latest(self.registry)
        everything = CollectorRegistry(auto_describe=False)
        everything.register(_Given([*self._counters(), *_by_worker(counts)]))
        return generate_latest(everything)

    async def read(self, what: Callable[[], T]) -> T:
        """`what` reads what all processes have counted: with several, out of many files, which is
        not done on the event loop."""
        return what() if self._folder is None else await asyncio.to_thread(what)

    def _counters(self) -> Iterable[Metric]:
        # The library has no types here.
        collector = MultiProcessCollector(None, path=self._folder)  # type: ignore[no-untyped-call]  # the library left it untyped
        shared: Iterable[Metric] = collector.collect()  # type: ignore[no-untyped-call]  # the library left it untyped
        return shared


class _Given(Collector):
    """Families that have been collected already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _by_worker(counts: Sequence[Counts]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for one in counts:
        for gauge in one.gauges:
            family = families.setdefault(gauge.name, Metric(gauge.name, gauge.help, "gauge"))
            family.add_sample(gauge.name, {**gauge.labels, "worker": str(one.worker)}, gauge.value)
    return families.values()


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
