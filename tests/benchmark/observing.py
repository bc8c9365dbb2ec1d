"""What it costs an exact hit to be timed, counted, logged and traced. `make bench` does not run it:
`.venv/bin/python tests/benchmark/observing.py [--rounds N]`.

CPU of the process (user and system) a passage, least of many short rounds, since the machine may
be busy. A
passage is what the data port makes of an exact hit, with the times of its two phases. Each row
stands for itself. For comparison: counting the same in the metrics at once, and the least that can
be counted at once (a request, its first byte, its tokens) with the metrics' labels at hand.
"""

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version

NUM_PASSAGES = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--folder", help="measure with counters in files, as several workers do")
    arguments = parser.parse_args()
    if arguments.folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = arguments.folder
    else:
        _say_where()
    asyncio.run(_measure(arguments.rounds, files=bool(arguments.folder)))
    if not arguments.folder:
        with tempfile.TemporaryDirectory() as folder:
            # The library decides at its import where counters are kept.
            os.execv(sys.executable, [sys.executable, *sys.argv, "--folder", folder])


def _say_where() -> None:
    names = ("msgspec", "prometheus-client", "opentelemetry-sdk")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()},"
          f" {versions}\n\n| us a hit | counters |\n|---|---|")  # fmt: skip


async def _measure(rounds: int, *, files: bool) -> None:
    from proxy.observing.accesslog import line_of
    from proxy.observing.counting import Counting
    from proxy.observing.metrics import Metrics
    from proxy.observing.prices import Prices
    from proxy.observing.servertiming import server_timing
    from proxy.observing.spans import spans_of
    from proxy.observing.timing import Timing
    from proxy.observing.traceparent import trace_of
    from proxy.settings.observing import Price

    metrics = Metrics()
    counting = Counting(metrics, prices=Prices({"gpt-*": Price(input=2.5, output=10.0)}))
    passage = _passage()
    trace = trace_of((), share=1.0)

    def timed() -> None:
        timing = Timing()
        timing.received("gpt-4o")
        with timing.phase("lookup"):
            pass

    def direct() -> None:
        metrics.requests.labels("/chat/completions", "exact", "200").inc()
        metrics.latency.labels("exact").observe(0.0003)
        for phase in ("receive", "lookup", "total"):
            metrics.phases.labels("exact", phase).observe(0.0002)
        for direction in ("input", "output"):
            metrics.tokens_saved.labels("gpt-4o", "standard", direction).inc(100)
        metrics.money_saved.labels("gpt-4o", "standard", "USD").inc(0.1)
        metrics.seconds_saved.labels("gpt-4o", "standard").inc(1.5)

    request = metrics.requests.labels("/chat/completions", "exact", "200")
    first_byte = metrics.latency.labels("exact")
    of_input = metrics.tokens_saved.labels("gpt-4o", "standard", "input")
    of_output = metrics.tokens_saved.labels("gpt-4o", "standard", "output")

    def least() -> None:
        request.inc()
        first_byte.observe(0.0003)
        of_input.inc(100)
        of_output.inc(100)

    rows: list[tuple[str, Callable[[], object]]] = [
        ("timed", timed),
        ("counted, and flushed once a thousand hits", lambda: counting.note(passage)),
        ("for comparison: all of it at once", direct),
        ("for comparison: the least at once", least),
        ("`Server-Timing`", lambda: server_timing(passage.timing)),
        ("a line of the access log, before it is written", lambda: line_of(passage)),
        ("spans, before they are exported", lambda: spans_of(passage, trace)),
    ]
    where = "files" if files else "memory"
    for name, act in rows:
        flush = counting.flush if name.startswith("counted") else None
        best = min(_round(act, flush) for _ in range(rounds))
        print(f"| {name}: {best:.2f} | {where} |", flush=True)


def _round(act: Callable[[], object], flush: Callable[[], object] | None) -> float:
    began = time.process_time()
    for _ in range(NUM_PASSAGES):
        act()
    if flush is not None:
        flush()
    return (time.process_time() - began) / NUM_PASSAGES * 1e6


def _passage():
    from index.entry import Entry, Snapshot
    from proxy.call import Surface
    from proxy.observing.timing import Timing
    from proxy.outcome import ExactHit
    from proxy.port.passage import Passage
    from proxy.reply import Answer, Reply

    entry = Entry(
        key="0" * 64, scope="", tenant="t", policy="standard", upstream="openai", model="gpt-4o",
        surface="/chat/completions", prompt="", canonical=b"", payload=b"", tags=(),
        snapshot=Snapshot(generation="g", sequence=0), created_at=0.0, expires_at=9.0,
        keep_until=9.0, input_tokens=100, output_tokens=100, latency_ms=1500.0,
    )  # fmt: skip
    timing = Timing()
    timing.received("gpt-4o")
    with timing.phase("lookup"):
        pass
    return Passage(
        request_id="r" * 32,
        arrived_at=time.time(),
        timing=timing,
        method="POST",
        path="/v1/chat/completions",
        surface=Surface.CHAT,
        answer=Answer(
            reply=Reply(status=200, headers=(), body=b""),
            outcome=ExactHit(entry=entry, age_s=1.0, ttl_s=9.0),
        ),
        status=200,
        first_ms=0.3,
        total_ms=0.35,
        ended="whole",
    )


if __name__ == "__main__":
    main()
