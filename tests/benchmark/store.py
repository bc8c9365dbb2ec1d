"""What the stores cost: hits, puts, purges and opening, by number of entries.

    python tests/benchmark/store.py [--entries 1000000] [--dir DIR]

Hits are awaited one after the other on one event loop, like the proxy awaits them; `get` never
suspends, so the figure is CPU time of that thread (the file is in the system's page cache). Puts,
purges and the rest count in wall time, from the call to the acknowledged commit. The floor is an
awaited coroutine that returns at once.
"""

import argparse
import asyncio
import hashlib
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from index.entry import Entry, Snapshot
from index.memory import MemoryStore
from index.sqlite import SqliteStore
from index.store import Purge

NOW = 1_800_000_000.0
ROUNDS = 5
PAYLOAD = os.urandom(1500)


def key_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def entry(number: int, snapshot: Snapshot, *tags: str) -> Entry:
    """About the size of a short chat answer."""
    return Entry(
        key=key_of(number),
        scope="",
        tenant="acme",
        policy="standard",
        upstream="openai",
        model="gpt-4o-mini",
        surface="/chat/completions",
        prompt="What is the capital of France?",
        canonical=b'{"messages":[{"content":"What is the capital of France?"}]}' * 8,
        payload=PAYLOAD,
        tags=tuple(sorted(("model:gpt-4o-mini", "policy:standard", "tenant:acme", *tags))),
        snapshot=snapshot,
        created_at=NOW,
        expires_at=NOW + 3600,
        keep_until=NOW + 7200,
        input_tokens=20,
        output_tokens=100,
        latency_ms=800.0,
    )


async def microseconds(
    call: Callable[[int], Awaitable[object]],
    times: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median over the rounds of the mean time of a call."""
    means = []
    for _ in range(ROUNDS):
        begun = clock()
        for number in range(times):
            await call(number)
        means.append((clock() - begun) / times * 1e6)
    return statistics.median(means)


async def cpu(call: Callable[[int], Awaitable[object]], times: int) -> float:
    """The same in CPU time of this thread: what a call that never suspends costs."""
    return await microseconds(call, times, clock=time.thread_time)


async def nothing(_: int) -> None:
    """The floor."""


def say(what: str, value: float, unit: str) -> None:
    print(f"{what:<58}{value:>12,.1f} {unit}", flush=True)


async def measure_memory() -> None:
    store = MemoryStore(max_bytes=256 * 2**20)
    snapshot = await store.snapshot()
    keys = [key_of(number) for number in range(1000)]
    for number in range(1000):
        await store.put(entry(number, snapshot))
    say(
        "memory store: hit",
        await cpu(lambda n: store.get(keys[n % 1000], now=NOW), 20_000),
        "us",
    )
    ready = [entry(number, snapshot) for number in range(20_000)]
    say("memory store: put", await microseconds(lambda n: store.put(ready[n]), 20_000), "us")
    await store.close()


async def measure_hits(path: Path, *, memory_bytes: int, name: str) -> None:
    store = await SqliteStore.open(path, memory_bytes=memory_bytes, disk_bytes=2**33)
    snapshot = await store.snapshot()
    keys = [key_of(number) for number in range(1000)]
    for number in range(1000):
        await store.put(entry(number, snapshot, f"doc:{number}"))
    hit_us = await cpu(lambda n: store.get(keys[n % 1000], now=NOW), 20_000)
    say(f"SQLite store: hit in the {name}", hit_us, "us")
    await store.close()


async def measure_sqlite(folder: Path) -> None:
    path = folder / "small.db"
    await measure_hits(path, memory_bytes=2**28, name="memory tier")
    await measure_hits(path, memory_bytes=0, name="file")
    store = await SqliteStore.open(path, memory_bytes=2**26, disk_bytes=2**33)
    snapshot = await store.snapshot()
    ready = [entry(number, snapshot, f"doc:{number}") for number in range(4096)]
    say(
        "SQLite store: miss",
        await cpu(lambda n: store.get("absent", now=NOW), 20_000),
        "us",
    )
    say(
        "SQLite store: put, one at a time",
        await microseconds(lambda n: store.put(ready[n]), 2_000),
        "us",
    )

    async def sixty_four(number: int) -> None:
        await asyncio.gather(*(store.put(one) for one in ready[number * 64 : number * 64 + 64]))

    say("SQLite store: put, 64 at a time, each", await microseconds(sixty_four, 64) / 64, "us")
    durations = []
    for number in range(200):
        begun = time.perf_counter()
        await store.purge(Purge(tags=(f"doc:{number}",)), now=NOW)
        durations.append((time.perf_counter() - begun) * 1e6)
    say("SQLite store: purge of a tag with one entry, median", statistics.median(durations), "us")
    say("SQLite store: purge of a tag with one entry, worst of 200", max(durations), "us")
    await store.close()


def fsync_us(folder: Path) -> float:
    """What one fsync of a small append costs here."""
    durations = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            durations.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(durations)


async def measure_large(folder: Path, num_entries: int) -> None:
    path = folder / "large.db"
    store = await SqliteStore.open(path, memory_bytes=2**26, disk_bytes=2**38)
    snapshot = await store.snapshot()
    small = msgspec.structs.replace(
        entry(0, snapshot, "all"), payload=PAYLOAD[:300], canonical=b"{}"
    )
    begun = time.perf_counter()
    for first in range(0, num_entries, 512):
        await asyncio.gather(
            *(
                store.put(msgspec.structs.replace(small, key=key_of(number)))
                for number in range(first, min(first + 512, num_entries))
            )
        )
    say(
        f"{num_entries:,} puts, 512 waiting, each",
        (time.perf_counter() - begun) / num_entries * 1e6,
        "us",
    )
    await store.close()
    say("file", path.stat().st_size / 2**20, "MiB")
    begun = time.perf_counter()
    store = await SqliteStore.open(path, memory_bytes=0, disk_bytes=2**38)
    say("open", (time.perf_counter() - begun) * 1e3, "ms")
    keys = [key_of(number * 7919 % num_entries) for number in range(5_000)]
    say("hit in the file", await cpu(lambda n: store.get(keys[n], now=NOW), 5_000), "us")
    begun = time.perf_counter()
    counted = await store.purge(Purge(tags=("all",), dry_run=True), now=NOW)
    say(
        f"dry run of a purge that covers {counted.matched:,}",
        (time.perf_counter() - begun) * 1e3,
        "ms",
    )
    begun = time.perf_counter()
    await store.purge(Purge(tags=("all",)), now=NOW)
    say("purge of a tag with all of them", (time.perf_counter() - begun) * 1e3, "ms")
    lookup = await store.get(keys[0], now=NOW)
    assert lookup.entry is None and lookup.reason == "purged", lookup.reason
    sweep = asyncio.create_task(store.sweep(now=NOW))
    begun, puts = time.perf_counter(), []
    fresh = msgspec.structs.replace(small, snapshot=await store.snapshot())
    number = num_entries
    while not sweep.done():
        at = time.perf_counter()
        await store.put(msgspec.structs.replace(fresh, key=key_of(number)))
        puts.append((time.perf_counter() - at) * 1e3)
        number += 1
    say(f"sweep of {await sweep:,} with puts in between", time.perf_counter() - begun, "s")
    puts.sort()
    say("put during the sweep, median", statistics.median(puts), "ms")
    say("put during the sweep, p99", puts[len(puts) * 99 // 100], "ms")
    await store.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--entries", type=int, default=0, help="entries of a large file; 0: skip")
    parser.add_argument("--dir", type=Path, default=None, help="where the files are made")
    options = parser.parse_args()
    print(
        f"{platform.platform()}, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}, ", end=""
    )
    print(
        f"SQLite {sqlite3.sqlite_version}, msgspec {msgspec.__version__}; median of {ROUNDS} rounds"
    )
    with tempfile.TemporaryDirectory(dir=options.dir) as name:
        folder = Path(name)
        say("floor: await of a coroutine", await cpu(lambda n: nothing(n), 100_000), "us")
        say("floor: one fsync of 4 KiB", fsync_us(folder), "us")
        await measure_memory()
        await measure_sqlite(folder)
        if options.entries:
            await measure_large(folder, options.entries)


if __name__ == "__main__":
    asyncio.run(main())
