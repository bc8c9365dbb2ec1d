"""What a request costs: CPU of the serving process per request, beside a bare ASGI application.

    python tests/benchmark/serving.py [--requests 4000] [--in-flight 16] [--pace-ms 2]

Starts a mock upstream, the proxy (SQLite store, exact cache) and the floor as processes of their
own, and drives them with `load.py` from another. The figure is user plus system CPU time of the
serving process tree divided by requests, read before and after; requests per second and latencies
stand beside it, but they say as much of the machine as of the program.
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
from pathlib import Path

import psutil

HERE = Path(__file__).parent

RECORDED = "mock-recorded"
"""A model whose one answer is recorded from a stream and then asked for plain."""

CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
store: {{path: {store}, memory: 256MiB}}
upstreams:
  mock: {{base_url: "http://127.0.0.1:{upstream}/v1"}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "mock*"}}, to: mock, cache: standard}}
  - {{match: {{model: "uncached"}}, to: mock, cache: none}}
"""


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


def drive(
    port: int, process: psutil.Process, arguments: list[str], requests: int
) -> dict[str, float]:
    before = cpu_s(process)
    command = [sys.executable, str(HERE / "load.py"), str(port), "--requests", str(requests)]
    output = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(output.stdout)
    result["cpu_us"] = (cpu_s(process) - before) / requests * 1e6
    result["rss_mb"] = process.memory_info().rss / 2**20
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--pace-ms", type=float, default=2.0)
    options = parser.parse_args()
    upstream, floor, port, admin = (free_port() for _ in range(4))
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> psutil.Process:
        started.append(subprocess.Popen([sys.executable, *command]))
        return psutil.Process(started[-1].pid)

    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "benchmark.yaml"
        store = Path(folder) / "benchmark.db"
        config.write_text(CONFIG.format(port=port, admin=admin, upstream=upstream, store=store))
        try:
            start(str(HERE / "mock_upstream.py"), str(upstream), "--pace-ms", str(options.pace_ms))
            bare = start(str(HERE / "bare_asgi.py"), str(floor))
            proxy = start("-m", "proxy.cli", "serve", str(config))
            for one in (upstream, floor, port):
                wait_for(one)
            report(options, bare, proxy, floor, port)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(timeout=60)


def report(
    options: argparse.Namespace, bare: psutil.Process, proxy: psutil.Process, floor: int, port: int
) -> None:
    in_flight = ["--in-flight", str(options.in_flight)]
    few = max(options.requests // 8, 64)
    cases = [
        ("floor, plain", bare, floor, ["--kind", "hit"], options.requests),
        ("floor, 64 chunks at once", bare, floor, ["--kind", "hit", "--stream"], options.requests),
        ("exact hit, plain", proxy, port, ["--kind", "hit"], options.requests),
        (
            "exact hit, replay of 64 chunks",
            proxy,
            port,
            ["--kind", "hit", "--stream"],
            options.requests,
        ),
        (
            "exact hit, plain, of a stream",
            proxy,
            port,
            ["--kind", "hit", "--model", RECORDED],
            options.requests,
        ),
        ("miss, plain", proxy, port, ["--kind", "miss"], options.requests),
        (
            "miss, 64 paced chunks",
            proxy,
            port,
            ["--kind", "miss", "--stream"],
            few,
        ),
        (
            "uncached route, plain",
            proxy,
            port,
            ["--kind", "miss", "--model", "uncached"],
            options.requests,
        ),
    ]
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("rejoinder", "litestar", "uvicorn", "uvloop", "httpx-aiohttp", "msgspec")
    )
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}; {versions}")  # fmt: skip
    print(
        f"{options.requests} requests, {options.in_flight} in flight; CPU of the serving process\n"
    )
    columns = ("CPU us", "req/s", "p50 ms", "p99 ms", "first ms", "failed", "RSS MB")
    print(" " * 32 + "".join(f"{column:>9}" for column in columns))
    drive(port, proxy, ["--kind", "hit", "--stream", "--model", RECORDED], 1)
    for number, (name, process, where, arguments, requests) in enumerate(cases):
        # One round to warm up: connections, caches, the entry of the hits. Seeds are never used
        # twice, or a miss would find what another case has asked.
        first = number * 10_000_000
        drive(where, process, [*arguments, "--first-seed", str(first), *in_flight], 64)
        seed = str(first + 1_000_000)
        row = drive(where, process, [*arguments, "--first-seed", seed, *in_flight], requests)
        figures = (
            f"{row['cpu_us']:.0f}",
            f"{row['requests_per_s']:.0f}",
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['first_p50_ms']:.2f}",
            f"{row['failed']:.0f}",
            f"{row['rss_mb']:.0f}",
        )
        print(f"{name:32}" + "".join(f"{figure:>9}" for figure in figures))


if __name__ == "__main__":
    main()
