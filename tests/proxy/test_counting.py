"""Counting answers."""

from index.entry import Entry, Snapshot
from proxy.call import Surface
from proxy.counting import Counting
from proxy.metrics import Metrics
from proxy.outcome import ExactHit
from proxy.reply import Answer, Reply


def entry(model: str) -> Entry:
    return Entry(
        key="k", scope="", tenant="t", policy="p", upstream="u", model=model, surface="/s",
        prompt="", canonical=b"", payload=b"", tags=(),
        snapshot=Snapshot(generation="g", sequence=0), created_at=0.0, expires_at=9.0,
        keep_until=9.0, input_tokens=2, output_tokens=3, latency_ms=1.0,
    )  # fmt: skip


def test_models_beyond_the_first_hundred_are_counted_together():
    metrics = Metrics()
    counting = Counting(metrics)
    for _ in range(2):
        for number in range(150):
            hit = ExactHit(entry=entry(f"model-{number}"), age_s=0.0, ttl_s=9.0)
            answer = Answer(reply=Reply(status=200, headers=(), body=b""), outcome=hit)
            counting.count(Surface.CHAT, answer, elapsed_s=0.001)

    def saved(model: str, direction: str) -> float | None:
        labels = {"model": model, "direction": direction}
        return metrics.registry.get_sample_value("rejoinder_tokens_saved_total", labels)

    assert saved("model-99", "output") == 6.0
    assert saved("model-100", "output") is None
    assert saved("other", "input") == 2 * 50 * 2.0
