"""What it costs to send: CPU of one process per request through `Sender`, without the proxy around.

    python tests/benchmark/sending.py [--requests 3000] [--in-flight 16] [--rounds 3]

Starts the mock upstream as a process of its own. The figure is the sending process's user plus
system time divided by requests; the best of the rounds, since other work on the machine only adds.
"""

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import uvloop
from serving import free_port, wait_for

from proxy.settings.upstreams import Upstream as UpstreamConfig
from proxy.upstreams.base import Upstream, UpstreamRequest
from proxy.upstreams.budget import RetryBudget
from proxy.upstreams.fallback import Sender
from proxy.upstreams.fleet import RemoteUpstream
from proxy.upstreams.pool import Pool

HERE = Path(__file__).parent
HEADERS = ((b"content-type", b"application/json"), (b"user-agent", b"benchmark"))
MESSAGES = b'"messages":[{"role":"user","content":"What is a cache?"}]'


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A route as senders see it."""

    upstreams: tuple[Upstream, ...]
    retries: int = 2
    hedge_after_s: float | None = None


async def measure(port: int, options: argparse.Namespace) -> None:
    config = UpstreamConfig(base_url=f"http://127.0.0.1:{port}/v1")
    upstream = RemoteUpstream("mock", config)
    pools = {"mock": Pool("mock", upstream.servers, config)}
    sender = Sender(pools, budget=RetryBudget(), count=lambda _upstream, _result: None)
    plan = Plan(upstreams=(upstream,))

    async def one(stream: bool) -> None:
        asked = b',"stream":true}' if stream else b"}"
        request = UpstreamRequest(
            request_id="r", method="POST", path="/chat/completions", query=b"", headers=HEADERS,
            credential=b"Bearer sk-client", body=b'{"model":"mock",' + MESSAGES + asked,
            stream=stream,
        )  # fmt: skip
        response = await sender.send(plan, lambda _upstream: request)
        assert response.status == 200
        async for _ in response.body:
            pass

    for name, stream, number in (
        ("plain", False, options.requests),
        ("stream of 66 chunks", True, options.requests // 6),
    ):
        costs = [
            await cpu_us(lambda stream=stream: one(stream), number, options.in_flight)
            for _ in range(options.rounds)
        ]
        print(f"{name:24}{min(costs):9.0f} us   (rounds: {', '.join(f'{c:.0f}' for c in costs)})")
    await upstream.close()


async def cpu_us(one: Callable[[], Awaitable[None]], number: int, in_flight: int) -> float:
    """CPU microseconds a request."""
    left = iter(range(number))

    async def worker() -> None:
        for _ in left:
            await one()

    await one()
    before = time.process_time()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return (time.process_time() - before) / number * 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    port = free_port()
    upstream = subprocess.Popen(
        [sys.executable, str(HERE / "mock_upstream.py"), str(port), "--pace-ms", "2"]
    )
    try:
        wait_for(port)
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; "
            f"{options.in_flight} in flight\n"
        )
        uvloop.run(measure(port, options))
    finally:
        upstream.terminate()
        upstream.wait(timeout=60)


if __name__ == "__main__":
    main()
