"""CPU time of this process, all threads, per call: a busy machine does not show in it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from index.embedders.embedder import ModelEmbedder
from index.guards.parse import parse
from index.nearest.scopes import Scopes
from index.verdict import judge, rules_for
from index.volatility.examples import Examples
from index.volatility.learned import LearnedVolatility
from index.volatility.rules import volatile
from meaning.sets import Rows

_QUESTION = "please tell me how i can renew an old passport before a trip abroad"


async def bench_latency(embedder: ModelEmbedder, pairs: Rows) -> None:
    """One request's parts, and the verdict over many different pairs."""
    (vector,) = await embedder.embed([_QUESTION])
    raw = vector.astype("<f4").tobytes()
    learned, examples = LearnedVolatility(embedder), Examples()

    print("\nLatency")
    await _timed("embed one text of 16 tokens", 200, lambda: embedder.embed([_QUESTION]))
    scopes = _filled(embedder.dimension)
    await _timed("search 10,000 in one scope", 300, lambda: scopes.search("", vector, limit=8))
    scopes.close()
    await _timed("volatile rules", 1000, lambda: volatile(_QUESTION))
    await _timed("volatile classifier", 1000, lambda: learned.judge(raw, examples))
    _verdicts([(row["a"], row["b"]) for row in pairs[:2000]])


def _filled(dimension: int) -> Scopes:
    """With its graph made: the time of the thread that makes it is not that of a search."""
    generator = np.random.default_rng(0)
    scopes = Scopes(dimension)
    for place in range(10_000):
        vector = generator.normal(size=dimension).astype("<f4")
        scopes.add("", place, (vector / np.linalg.norm(vector)).tobytes())
    assert scopes._builder is not None
    for _ in range(8):  # what is made takes its place at a search, and more may be made then
        scopes._builder.submit(int).result()
        scopes.search("", vector, limit=1)
    return scopes


def _verdicts(pairs: Sequence[tuple[str, str]]) -> None:
    """At a similarity that only the words can refuse, which is where most time goes."""
    rules = rules_for("strict")
    half = len(pairs) // 2 or 1
    for name, rounds in (("cold", 1), ("both prompts read before", 3)):
        parse.cache_clear()
        spent = 0.0
        for first in range(0, len(pairs), half):
            batch = pairs[first : first + half]
            for turn in range(rounds):
                started = time.process_time()
                for a, b in batch:
                    judge(a, b, similarity=0.99, rules=rules)
                spent += (time.process_time() - started) if turn == rounds - 1 else 0.0
        print(f"{'verdict, ' + name:44}{spent / max(1, len(pairs)) * 1e6:10.1f} us")


async def _timed(name: str, rounds: int, call: Callable[[], Any]) -> None:
    started = time.process_time()
    for _ in range(rounds):
        result = call()
        if asyncio.iscoroutine(result):
            await result
    print(f"{name:44}{(time.process_time() - started) / rounds * 1e6:10.1f} us")
