"""Eviction by worth against LRU: the tokens that hits save within the same bytes.

    python tests/benchmark/eviction.py --data DIR

DIR holds `traces.jsonl`: real arrivals with `input` and `output` (tokens), `hash_ids` (digests of
the blocks of the prompt) and `source`. Two requests are the same where source, blocks and length
are. An answer takes 4 bytes a token of prompt and answer. As few requests of the traces repeat,
their sizes are also replayed with a popularity of our own: Zipf (exponent 0.9) over the requests,
the ranks shuffled anew every tenth of the run, so that what was popular has to make room.
"""

import argparse
import json
import platform
import random
import sys
from collections import OrderedDict
from itertools import accumulate
from pathlib import Path

import msgspec

from index.entry import Entry, Snapshot
from index.tier import Tier

SEEN = Snapshot(generation="g", sequence=0)
BYTES_PER_TOKEN = 4
MS_PER_TOKEN = 20
"""A common speed of an answer; the traces do not say how long theirs took."""


class Request(msgspec.Struct, frozen=True):
    """One arrival."""

    key: str
    input_tokens: int
    output_tokens: int

    @property
    def size_bytes(self) -> int:
        return (self.input_tokens + self.output_tokens) * BYTES_PER_TOKEN + 1024

    def entry(self) -> Entry:
        return Entry(
            key=self.key,
            scope="",
            tenant="",
            policy="",
            upstream="",
            model="",
            surface="",
            prompt="",
            canonical=bytes(self.input_tokens * BYTES_PER_TOKEN),
            payload=bytes(self.output_tokens * BYTES_PER_TOKEN),
            tags=(),
            snapshot=SEEN,
            created_at=0,
            expires_at=0,
            keep_until=0,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            latency_ms=self.output_tokens * MS_PER_TOKEN,
        )


class Saved(msgspec.Struct):
    """What the hits of a run saved."""

    hits: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, request: Request) -> None:
        self.hits += 1
        self.input_tokens += request.input_tokens
        self.output_tokens += request.output_tokens


def with_lru(requests: list[Request], max_bytes: int) -> Saved:
    saved = Saved()
    held: OrderedDict[str, int] = OrderedDict()
    used = 0
    for request in requests:
        if request.key in held:
            held.move_to_end(request.key)
            saved.add(request)
            continue
        if request.size_bytes * 4 > max_bytes:
            continue
        while used + request.size_bytes > max_bytes:
            used -= held.popitem(last=False)[1]
        held[request.key] = request.size_bytes
        used += request.size_bytes
    return saved


def with_worth(requests: list[Request], max_bytes: int) -> Saved:
    saved = Saved()
    tier = Tier(max_bytes=max_bytes)
    for number, request in enumerate(requests):
        held = tier.get(request.key)
        if held is not None:
            tier.touch(held)
            saved.add(request)
            continue
        entry = request.entry()
        if tier.fits(entry):
            tier.put(entry, change=number)
    return saved


def read(path: Path) -> list[Request]:
    """The arrivals of all sources, one source after the other, in order of time."""
    arrivals = [json.loads(line) for line in path.read_text().splitlines()]
    arrivals.sort(key=lambda arrival: (arrival["source"], arrival["t_ms"]))
    return [
        Request(f"{one['source']} {one['input']} {one['hash_ids']}", one["input"], one["output"])
        for one in arrivals
    ]


def popular(requests: list[Request], num_arrivals: int, chance: random.Random) -> list[Request]:
    """Zipf over the distinct requests, with changing ranks."""
    distinct = list({request.key: request for request in requests}.values())
    weights = list(accumulate(1 / rank**0.9 for rank in range(1, len(distinct) + 1)))
    arrivals = []
    for _ in range(10):
        chance.shuffle(distinct)
        arrivals += chance.choices(distinct, cum_weights=weights, k=num_arrivals // 10)
    return arrivals


def report(name: str, requests: list[Request]) -> None:
    total_bytes = sum({request.key: request.size_bytes for request in requests}.values())
    for percent in (1, 5, 20, 50):
        max_bytes = total_bytes * percent // 100
        for policy, run in (("LRU", with_lru), ("worth", with_worth)):
            saved = run(requests, max_bytes)
            print(
                f"{name:<10}{percent:>4} %  {policy:<6}{saved.hits:>8,}"
                f"{saved.input_tokens:>14,}{saved.output_tokens:>12,}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with traces.jsonl")
    options = parser.parse_args()
    requests = read(options.data / "traces.jsonl")
    print(f"{platform.platform()}, Python {sys.version.split()[0]}; {len(requests):,} arrivals")
    print(f"{'requests':<10}{'room':>6}  {'policy':<6}{'hits':>8}{'input saved':>14}{'output':>12}")
    report("traces", requests)
    report("popular", popular(requests, 60_000, random.Random(7)))


if __name__ == "__main__":
    main()
