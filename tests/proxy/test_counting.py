"""Counting requests that have ended."""

import pytest

from index.entry import Entry, Snapshot
from proxy.call import Surface, Usage
from proxy.observing.counting import Counting
from proxy.observing.metrics import Metrics
from proxy.observing.prices import Prices, cost
from proxy.observing.timing import Phase, Timing
from proxy.outcome import Bypass, ExactHit
from proxy.port.passage import Passage
from proxy.reply import Answer, Reply
from proxy.settings.observing import Price


def entry(model: str, **more) -> Entry:
    given = {
        "key": "k", "scope": "", "tenant": "t", "policy": "p", "upstream": "u", "model": model,
        "surface": "/s", "prompt": "", "canonical": b"", "payload": b"", "tags": (),
        "snapshot": Snapshot(generation="g", sequence=0), "created_at": 0.0, "expires_at": 9.0,
        "keep_until": 9.0, "input_tokens": 2, "output_tokens": 3, "latency_ms": 1500.0,
    }  # fmt: skip
    return Entry(**{**given, **more})


def passage(outcome, *, first_ms=0.5, total_ms=0.75) -> Passage:
    timing = Timing()
    timing.phases.append(Phase("lookup", 0.0, 0.0002))
    return Passage(
        request_id="r", arrived_at=0.0, timing=timing, surface=Surface.CHAT, status=200,
        answer=Answer(reply=Reply(status=200, headers=(), body=b""), outcome=outcome),
        first_ms=first_ms, total_ms=total_ms, ended="whole",
    )  # fmt: skip


def hit(model: str = "m") -> ExactHit:
    return ExactHit(entry=entry(model), age_s=0.0, ttl_s=9.0)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def counting(metrics):
    return Counting(metrics, prices=Prices({"m*": Price(input=1.0, output=10.0)}))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_models_beyond_the_first_hundred_are_counted_together(metrics, counting):
    for _ in range(2):
        for number in range(150):
            counting.note(passage(hit(f"model-{number}")))
    counting.flush()

    def saved(model: str, direction: str) -> float | None:
        labels = {"model": model, "policy": "", "direction": direction}
        return value(metrics, "rejoinder_tokens_saved_total", **labels)

    assert saved("model-99", "output") == 6.0
    assert saved("model-100", "output") is None
    assert saved("other", "input") == 2 * 50 * 2.0


def test_what_is_flushed_twice_is_counted_once(metrics, counting):
    counting.note(passage(hit()))
    counting.flush()
    counting.flush()
    labels = {"surface": "/chat/completions", "outcome": "exact", "status": "200"}
    assert value(metrics, "rejoinder_requests_total", **labels) == 1.0
    assert value(metrics, "rejoinder_first_byte_seconds_count", outcome="exact") == 1.0


def test_a_handful_of_times_lands_in_the_buckets_of_single_ones(metrics, counting):
    times_ms = (0.1, 0.5, 0.6, 3.0, 40.0, 7_000.0, 500_000.0)
    alone = Metrics()
    for ms in times_ms:
        counting.note(passage(hit(), first_ms=ms, total_ms=ms))
        alone.latency.labels("exact").observe(ms / 1000)
    counting.flush()

    def samples(of: Metrics) -> list[tuple[str, str, float]]:
        (family,) = of.latency.collect()
        return [
            (one.name, one.labels.get("le", ""), pytest.approx(one.value))
            for one in family.samples
            if not one.name.endswith("_created")
        ]

    assert samples(metrics) == samples(alone)


def test_a_hit_saves_tokens_money_and_the_time_that_its_answer_took(metrics, counting):
    counting.note(passage(hit("m-1"), first_ms=500.0))
    counting.flush()
    money = value(metrics, "rejoinder_money_saved_total", model="m-1", policy="", currency="USD")
    assert money == pytest.approx((2 * 1.0 + 3 * 10.0) / 1e6)
    seconds = value(metrics, "rejoinder_seconds_saved_total", model="m-1", policy="")
    assert seconds == pytest.approx(1.0)


def test_a_model_without_a_price_saves_tokens_but_no_money(metrics, counting):
    counting.note(passage(hit("other-1")))
    counting.flush()
    assert "rejoinder_money_saved_total{" not in metrics.exposition([]).decode()


def test_a_request_that_saved_nothing_counts_its_reasons_and_times(metrics, counting):
    counting.note(passage(Bypass(reasons=("no_store",)), total_ms=2.0))
    counting.flush()
    assert value(metrics, "rejoinder_reasons_total", outcome="bypass", reason="no_store") == 1.0
    phase = {"outcome": "bypass", "phase": "lookup", "le": "0.0005"}
    assert value(metrics, "rejoinder_phase_seconds_bucket", **phase) == 1.0
    assert "tokens_saved_total{" not in metrics.exposition([]).decode()


def test_a_client_that_left_before_its_answer_is_counted_as_such(metrics, counting):
    gone = passage(None)
    gone.answer, gone.first_ms, gone.status, gone.ended = None, None, 0, "left"
    counting.note(gone)
    counting.flush()
    labels = {"surface": "/chat/completions", "outcome": "left", "status": "0"}
    assert value(metrics, "rejoinder_requests_total", **labels) == 1.0


def test_tokens_from_the_upstreams_own_cache_have_their_own_price():
    usage = Usage(input_tokens=1000, cached_tokens=600, output_tokens=100)
    assert cost(Price(input=2.0, cached_input=0.5, output=8.0), usage) == pytest.approx(
        (400 * 2.0 + 600 * 0.5 + 100 * 8.0) / 1e6
    )
    assert cost(Price(input=2.0, output=8.0), usage) == pytest.approx((2000.0 + 800.0) / 1e6)


def test_the_first_pattern_that_fits_sets_the_price():
    prices = Prices({"gpt-4o-mini*": Price(input=1.0), "gpt-4o*": Price(input=2.0)})
    assert prices.of("gpt-4o-mini-2024") == Price(input=1.0)
    assert prices.of("unheard-of", "gpt-4o") == Price(input=2.0)
    assert prices.of("unheard-of", "") is None
