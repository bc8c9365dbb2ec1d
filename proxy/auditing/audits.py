"""The audits of a process, which outlive every reload, and how they are shown."""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from index.store import Store
from proxy.auditing.ledger import Ledger
from proxy.auditing.reports import Reports
from proxy.auditing.tier import Tier
from proxy.observing.metrics import Metrics


class Audits(Collector):
    """What was found out, and what users said. Shows it to Prometheus."""

    def __init__(self, store: Store, *, metrics: Metrics) -> None:
        self.ledger = Ledger(store, metrics=metrics)
        self.reports = Reports(self.ledger, metrics=metrics)

    def figures(self) -> dict[str, Any]:
        """The tiers by their policies, for people."""
        return {tier.policy: _figures(tier) for tier in self.ledger.shown()}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        bound = GaugeMetricFamily(
            "rejoinder_semantic_error_bound",
            "The share of answers given by meaning that are wrong lies between these bounds.",
            labels=("policy", "side"),
        )
        serving = GaugeMetricFamily(
            "rejoinder_semantic_serving",
            "1 while a policy answers by meaning, 0 while it only looks.",
            labels=("policy", "state"),
        )
        raised = GaugeMetricFamily(
            "rejoinder_semantic_raised_similarity",
            "What is asked for on top of each least similarity, since audits found wrong answers.",
            labels=("policy",),
        )
        for tier in self.ledger.shown():
            now = tier.standing
            assert now is not None
            bound.add_metric((tier.policy, "lower"), now.lower)
            bound.add_metric((tier.policy, "upper"), now.upper)
            serving.add_metric((tier.policy, now.state), float(now.serves))
            raised.add_metric((tier.policy,), now.raised)
        yield from (bound, serving, raised)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: without it the registry would collect once at the registration."""
        return iter(())


def _figures(tier: Tier) -> dict[str, Any]:
    now = tier.standing
    assert now is not None
    return {
        "state": now.state,
        "bound": now.upper if now.is_proven else "unproven",
        "wrong_at_least": now.lower,
        "wrong_at_most": now.upper,
        "max_error": tier.terms.max_error,
        "hits": now.hits,
        "audited": now.counts.total,
        "found_wrong": now.counts.stored_only,
        "unclear": now.counts.all_differ,
        "unjudged": now.counts.unjudged,
        "noise": now.counts.fresh_only,
        "reported_wrong": now.reported,
        "pairs_refused": len(tier.wrong_pairs),
        "raised_similarity": now.raised,
        "epoch": now.epoch,
    }
