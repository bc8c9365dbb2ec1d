"""What a request costs: CPU of the serving process per request, beside a bare ASGI application.

    python tests/benchmark/serving.py [--requests 4000] [--in-flight 1 16 64] [--long]

Starts a mock upstream, the proxy (SQLite store, exact cache), the floor (a bare ASGI application on
the proxy's own server) and nginx where it is installed, each a process of its own, and drives them
with `load.py` from another. The figure is user plus system CPU time of the serving process tree
divided by requests, read before and after; requests per second and latencies stand beside it, but
they say as much of the machine as of the program. `--long` adds a thousand streams at once, and how
memory grows over 200,000 requests.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rivals import start_nginx

HERE = Path(__file__).parent
WARM_UP_REQUESTS = 64

RECORDED = "mock-recorded"
"""A model whose one answer is recorded from a stream and then asked for plain."""

CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
store: {{path: {store}, memory: 64MiB}}
upstreams:
  mock: {{base_url: "http://127.0.0.1:{upstream}/v1", max_in_flight: 4096}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "mock*"}}, to: mock, cache: standard}}
  - {{match: {{model: "uncached"}}, to: mock, cache: none}}
"""


@dataclass(frozen=True)
class Target:
    """Something that serves, and its process."""

    port: int
    process: psutil.Process


@dataclass(frozen=True)
class Case:
    """A row of the table. `share`: of the requests of a run, for what takes long."""

    name: str
    target: Target
    load: tuple[str, ...]
    share: float = 1.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def cpu_s(process: psutil.Process) -> float:
    """User and system CPU seconds of a process and its children."""
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        times = one.cpu_times()
        total += times.user + times.system
    return total


def drive(target: Target, load: list[str], requests: int) -> dict[str, float]:
    before = cpu_s(target.process)
    command = [sys.executable, str(HERE / "load.py"), str(target.port)]
    command += ["--requests", str(requests), *load]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(output.stdout)
    result["cpu_us"] = (cpu_s(target.process) - before) / requests * 1e6
    result["rss_mb"] = target.process.memory_info().rss / 2**20
    return result


def cases(proxy: Target, floor: Target, nginx: Target | None) -> Iterator[Case]:
    hit, miss, stream = ("--kind", "hit"), ("--kind", "miss"), ("--stream",)
    yield Case("floor, plain", floor, hit)
    yield Case("floor, 64 chunks at once", floor, (*hit, *stream))
    yield Case("exact hit, plain", proxy, hit)
    yield Case("exact hit, plain, traced", proxy, (*hit, "--traced"))
    yield Case("exact hit, replay of 64 chunks", proxy, (*hit, *stream))
    yield Case("exact hit, plain, of a stream", proxy, (*hit, "--model", RECORDED))
    yield Case("exact hit, body of 400 KB", proxy, (*hit, "--body-bytes", "400000"), 0.25)
    yield Case("miss, plain", proxy, miss)
    yield Case("miss, 64 paced chunks", proxy, (*miss, *stream), 0.125)
    yield Case("uncached route, plain", proxy, (*miss, "--model", "uncached"))
    if nginx is not None:
        yield Case("nginx, hit, plain", nginx, hit)
        yield Case("nginx, hit, 64 chunks", nginx, (*hit, *stream))
        yield Case("nginx, miss, plain", nginx, miss)
        yield Case("nginx, miss, 64 paced chunks", nginx, (*miss, *stream), 0.125)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16])
    parser.add_argument("--pace-ms", type=float, default=2.0)
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    upstream, bare, port, admin, other = (free_port() for _ in range(5))
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> psutil.Process:
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen([sys.executable, *command], stdout=quiet, stderr=quiet))
        return psutil.Process(started[-1].pid)

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        config = folder / "benchmark.yaml"
        store = folder / "benchmark.db"
        config.write_text(CONFIG.format(port=port, admin=admin, upstream=upstream, store=store))
        try:
            start(str(HERE / "mock_upstream.py"), str(upstream), "--pace-ms", str(options.pace_ms))
            floor = Target(bare, start(str(HERE / "bare_asgi.py"), str(bare)))
            proxy = Target(port, start("-m", "proxy.cli", "serve", str(config)))
            rival = start_nginx(folder, port=other, upstream=upstream)
            nginx = None
            if rival is not None:
                started.append(rival)
                nginx = Target(other, psutil.Process(rival.pid))
            for one in (upstream, bare, port, *([other] if rival else [])):
                wait_for(one)
            describe()
            drive(proxy, ["--kind", "hit", "--stream", "--model", RECORDED], 1)
            for in_flight in options.in_flight:
                report(list(cases(proxy, floor, nginx)), options.requests, in_flight)
            if options.long:
                report_long(proxy)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(timeout=60)


def describe() -> None:
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("rejoinder", "litestar", "uvicorn", "uvloop", "aiohttp", "msgspec")
    )
    machine = platform.processor() or platform.machine()
    print(f"{machine}, {os.cpu_count()} cores, Python {platform.python_version()}; {versions}")
    print("CPU of the serving process a request, user and system")


def report(rows: list[Case], requests: int, in_flight: int) -> None:
    print(f"\n{requests} requests, {in_flight} in flight")
    columns = ("CPU us", "req/s", "p50 ms", "p99 ms", "first ms", "failed", "RSS MB")
    print(" " * 32 + "".join(f"{column:>9}" for column in columns))
    for case in rows:
        # One round to warm up: connections, caches, the entry of the hits. Seeds are never used
        # twice, or a miss would find what another case has asked.
        many = ["--in-flight", str(in_flight)]
        drive(case.target, [*case.load, *many, "--first-seed", new_seed()], WARM_UP_REQUESTS)
        number = max(int(requests * case.share), WARM_UP_REQUESTS)
        row = drive(case.target, [*case.load, *many, "--first-seed", new_seed()], number)
        figures = (
            f"{row['cpu_us']:.0f}",
            f"{row['requests_per_s']:.0f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['first_p50_ms']:.2f}",
            f"{row['failed']:.0f}",
            f"{row['rss_mb']:.0f}",
        )
        print(f"{case.name:32}" + "".join(f"{figure:>9}" for figure in figures), flush=True)


def report_long(proxy: Target) -> None:
    load = ["--kind", "miss", "--stream", "--in-flight", "1000", "--first-seed", new_seed()]
    row = drive(proxy, load, 1000)
    print(f"\n1,000 streams at once: {row['failed']:.0f} failed, first byte p50 "
          f"{row['first_p50_ms']:.0f} ms, RSS {row['rss_mb']:.0f} MB")  # fmt: skip
    before = proxy.process.memory_info().rss
    for kind, requests in (("hit", 180_000), ("miss", 20_000)):
        load = ["--kind", kind, "--in-flight", "16", "--first-seed", new_seed()]
        drive(proxy, load, requests)
        grown = (proxy.process.memory_info().rss - before) / 2**20
        print(f"memory after {requests:,} more requests ({kind}): {grown:+.1f} MB")


def new_seed() -> str:
    """Beyond all that were used, whatever a run of the same store has asked."""
    return str(time.monotonic_ns() // 1000)


if __name__ == "__main__":
    main()
