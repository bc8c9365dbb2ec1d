"""Traces and GenAI metrics, as a collector gets them."""

import re
from threading import Event

import pytest
from collecting import attributes, collecting
from misbehaving import plain, serving
from running import CONFIG, good, running

from proxy.observing.otlp import Exporter
from proxy.observing.traceparent import told, trace_of
from proxy.settings.observing import Tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FIELDS = "tracing: {{endpoint: '{url}', headers: {{x-collector-key: s3cret}}{more}}}\n"


def config(upstream, collector, *, more="", policy="") -> str:
    traced = FIELDS.format(url=collector.url, more=more)
    return traced + CONFIG.format(upstream=upstream.url, options="", policy=policy)


def by_name(collector) -> dict:
    return {span.name: span for span in collector.spans()}


async def test_a_miss_is_a_span_with_its_lookup_and_its_attempt_below_it(tmp_path):
    with collecting() as collector:
        async with (
            serving(good) as upstream,
            running(config(upstream, collector), tmp_path) as p,
        ):
            answer = await p.ask()
            assert answer.status_code == 200
        roots = [span for span in collector.spans() if not span.parent_span_id]
    (root,) = roots
    below = {s.name: s for s in collector.spans() if s.parent_span_id == root.span_id}
    assert set(below) == {"receive", "lookup", "chat test-1"}
    assert {span.trace_id for span in collector.spans()} == {root.trace_id}
    attempt = below["chat test-1"]
    assert (root.kind, attempt.kind) == (2, 3)  # SERVER, CLIENT
    for span in below.values():
        assert root.start_time_unix_nano <= span.start_time_unix_nano
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    assert (
        attributes(root).items()
        >= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "test-1",
            "gen_ai.usage.input_tokens": 5,
            "gen_ai.usage.output_tokens": 3,
            "http.response.status_code": 200,
            "rejoinder.outcome": "miss",
            "rejoinder.policy": "standard",
            "rejoinder.request_id": answer.headers["x-request-id"],
            "url.path": "/v1/chat/completions",
        }.items()
    )
    assert (
        attributes(attempt).items()
        >= {
            "gen_ai.provider.name": "openai",
            "rejoinder.upstream": "main",
            "rejoinder.result": "answered",
        }.items()
    )
    assert collector.headers[0]["x-collector-key"] == "s3cret"


async def test_the_upstream_hears_of_the_clients_trace_and_of_the_attempt(tmp_path):
    with collecting() as collector:
        async with (
            serving(good) as upstream,
            running(config(upstream, collector), tmp_path) as p,
        ):
            sent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
            await p.ask(headers=sent)
        (heard,) = upstream.requests
        named = by_name(collector)
    version, trace_id, span_id, flags = heard.header("traceparent").split("-")
    assert (version, trace_id, flags) == ("00", TRACE, "01")
    attempts = [s for s in collector.spans() if s.span_id.hex() == span_id]
    assert [attributes(one)["rejoinder.upstream"] for one in attempts] == ["main"]
    assert heard.header("tracestate") == "vendor=1"
    root = next(s for s in collector.spans() if s.kind == 2)
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, PARENT)
    assert named["lookup"].parent_span_id == root.span_id


async def test_an_unsampled_trace_is_passed_on_and_not_told(tmp_path):
    with collecting() as collector:
        async with (
            serving(good) as upstream,
            running(config(upstream, collector), tmp_path) as p,
        ):
            await p.ask(headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
        (heard,) = upstream.requests
    assert re.fullmatch(f"00-{TRACE}-[0-9a-f]{{16}}-00", heard.header("traceparent"))
    assert collector.spans() == []


async def test_an_exact_hit_has_no_attempt_and_claims_no_tokens(tmp_path):
    with collecting() as collector:
        async with (
            serving(good) as upstream,
            running(config(upstream, collector), tmp_path) as p,
        ):
            await p.ask()
            await p.ask()
        roots = [attributes(s) for s in collector.spans() if not s.parent_span_id]
    hit = next(one for one in roots if one["rejoinder.outcome"] == "exact")
    assert not any(name.startswith("gen_ai.usage") for name in hit)
    assert len([s for s in collector.spans() if s.kind == 3]) == 1


async def test_metrics_count_what_was_billed_and_how_long_it_took(tmp_path):
    with collecting() as collector:
        async with (
            serving(good) as upstream,
            running(config(upstream, collector), tmp_path) as p,
        ):
            await p.ask()
            await p.ask()
            await p.ask("Another question?", stream=True)
        tokens = collector.points("gen_ai.client.token.usage")
        durations = collector.points("gen_ai.client.operation.duration")
    sums = {attributes(point)["gen_ai.token.type"]: point.sum for point in tokens}
    assert sums == {"input": 10, "output": 6}
    assert {attributes(point)["gen_ai.request.model"] for point in tokens} == {"test-1"}
    assert sum(point.count for point in durations) == 2


async def test_a_failed_attempt_and_the_request_are_marked_as_errors(tmp_path):
    async def broken(_request, writer):
        writer.write(plain(b'{"error": {"message": "no"}}', status="500 Internal Server Error"))

    with collecting() as collector:
        async with (
            serving(broken) as upstream,
            running(config(upstream, collector), tmp_path) as p,
        ):
            assert (await p.ask()).status_code == 500
        spans = collector.spans()
    failed = {s.kind: attributes(s).get("error.type") for s in spans if s.status.code == 2}
    assert failed == {2: "500", 3: "500"}


async def test_a_collector_that_is_gone_costs_no_answer(tmp_path):
    with collecting() as collector:
        pass
    async with (
        serving(good) as upstream,
        running(config(upstream, collector, more=", metrics: false"), tmp_path) as p,
    ):
        assert (await p.ask()).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"00-" + b"0" * 32 + b"-" + PARENT.encode() + b"-01",
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"ff-{TRACE}-{PARENT}-01".encode(),
        f"00-{TRACE}-{PARENT}-01-more".encode(),
        f"00-{TRACE.upper()}-{PARENT}-01".encode(),
    ],
)
def test_a_parent_that_is_none_begins_a_new_trace(header):
    trace = trace_of(((b"traceparent", header),), share=1.0)
    assert f"{trace.trace_id:032x}" != TRACE
    assert trace.parent_id == 0
    assert trace.is_sampled


def test_a_later_version_is_read_as_far_as_it_is_known():
    trace = trace_of(((b"traceparent", f"cc-{TRACE}-{PARENT}-03-what".encode()),), share=0.0)
    assert (f"{trace.trace_id:032x}", trace.is_sampled) == (TRACE, True)


def test_the_share_of_sampled_traces_is_as_asked():
    sampled = [trace_of((), share=0.25).is_sampled for _ in range(4000)]
    assert 800 < sum(sampled) < 1200  # ten standard deviations are 274
    assert not any(trace_of((), share=0.0).is_sampled for _ in range(100))


def test_a_header_told_takes_the_place_of_the_clients():
    trace = trace_of((), share=1.0)
    headers = told(((b"traceparent", b"old"), (b"a", b"b")), trace, span_id=1)
    assert headers == (
        (b"a", b"b"),
        (b"traceparent", f"00-{trace.trace_id:032x}-{1:016x}-01".encode()),
    )


def test_a_collector_that_does_not_answer_holds_up_no_end():
    let_go, has_ended = Event(), Event()

    class Hanging(Exporter):
        def __init__(self):
            super().__init__(Tracing(endpoint="http://127.0.0.1:9"))
            self._processor.shutdown()
            self._meters.shutdown()
            self._processor = self._meters = self

        def shutdown(self):
            let_go.wait()
            has_ended.set()

    try:
        Hanging().close()
        assert not has_ended.is_set()
    finally:
        let_go.set()
