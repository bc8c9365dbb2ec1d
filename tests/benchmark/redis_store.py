"""What the Redis store costs: hits, misses, puts, purges, and what the filter of keys saves.

    python tests/benchmark/redis_store.py [--url redis://HOST:PORT/0] [--calls 5000]

Without `--url` it starts a Redis of its own on the loopback, so the network is as near as it can
be. CPU is that of this process, the proxy's side; the server's comes from its own counters. A call
after the other gives the latency; 64 at a time give what a call costs on a busy proxy. For
comparison the same script is called through the client library's own connection pool.
"""

import argparse
import asyncio
import hashlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import hiredis
import redis
import redis.asyncio

from index.entry import Entry, Snapshot
from index.redis import RedisStore, scripts
from index.redis.shards import NUM_SHARDS, name_of, shard_of
from index.store import Purge

sys.path.insert(0, str(Path(__file__).parents[1]))
from redis_servers import RedisServer

NOW = 1_800_000_000.0
PAYLOAD = os.urandom(1500)
NUM_ENTRIES = 1000
AT_ONCE = 64

Call = Callable[[int], Awaitable[object]]


def key_of(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def entry(name: object, snapshot: Snapshot, *tags: str) -> Entry:
    """About the size of a short chat answer."""
    return Entry(
        key=key_of(name),
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


async def measure(what: str, call: Call, times: int, server: redis.Redis) -> None:
    """One line: latency one at a time, CPU here and at the server, and CPU here 64 at a time."""
    await asyncio.gather(*(call(number) for number in range(AT_ONCE)))  # warm
    latencies = []
    busy_s, cpu_s = server_cpu(server), time.process_time()
    for number in range(AT_ONCE, AT_ONCE + times):
        begun = time.perf_counter()
        await call(number)
        latencies.append(time.perf_counter() - begun)
    cpu_us = (time.process_time() - cpu_s) / times * 1e6
    server_us = (server_cpu(server) - busy_s) / times * 1e6
    cpu_s, first = time.process_time(), AT_ONCE + times
    for begin in range(first, first + times, AT_ONCE):
        await asyncio.gather(*(call(number) for number in range(begin, begin + AT_ONCE)))
    together_us = (time.process_time() - cpu_s) / times * 1e6
    latencies.sort()
    median_us = statistics.median(latencies) * 1e6
    late_us = latencies[int(len(latencies) * 0.99)] * 1e6
    print(
        f"{what:<34}{median_us:>10,.0f}{late_us:>10,.0f}{cpu_us:>10,.1f}{together_us:>12,.1f}"
        f"{server_us:>12,.1f}",
        flush=True,
    )


def server_cpu(server: redis.Redis) -> float:
    used = server.info("cpu")
    return used["used_cpu_user"] + used["used_cpu_sys"]


async def run(url: str, num_calls: int) -> None:
    server = redis.Redis.from_url(url)
    print(f"{'us per call':<34}{'median':>10}{'99 %':>10}{'CPU':>10}{'CPU, 64':>12}{'server':>12}")
    for memory_bytes, tier in ((0, "without a memory tier"), (2**26, "with a memory tier")):
        store = await RedisStore.open(url, memory_bytes=memory_bytes, max_bytes=2**32)
        snapshot = await store.snapshot()
        keys = [key_of(number) for number in range(NUM_ENTRIES)]
        for number in range(NUM_ENTRIES):
            await store.put(entry(number, snapshot, f"doc:{number}"))

        async def hit(number: int, store: RedisStore = store, keys: list[str] = keys) -> None:
            lookup = await store.get(keys[number % NUM_ENTRIES], now=NOW)
            assert lookup.entry is not None

        await measure(f"hit, {tier}", hit, num_calls, server)
        await store.close()
    await misses(url, server, num_calls)
    await writes(url, server, num_calls)
    await through_the_library(url, server, num_calls)
    server.close()


async def misses(url: str, server: redis.Redis, num_calls: int) -> None:
    for filter_bytes, name in ((0, "without a filter"), (2**24, "with a filter")):
        store = await RedisStore.open(
            url, memory_bytes=2**26, max_bytes=2**32, filter_bytes=filter_bytes
        )
        keys = [key_of(f"{name} {number}") for number in range(2 * num_calls + 3 * AT_ONCE)]
        if filter_bytes:
            await asyncio.sleep(1)  # it reads what is stored in the background

        async def miss(number: int, store: RedisStore = store, keys: list[str] = keys) -> None:
            lookup = await store.get(keys[number], now=NOW)
            assert lookup.entry is None

        await measure(f"miss, {name}", miss, num_calls, server)
        await store.close()


async def writes(url: str, server: redis.Redis, num_calls: int) -> None:
    store = await RedisStore.open(url, memory_bytes=2**26, max_bytes=2**32)
    snapshot = await store.snapshot()
    made = [entry(f"put {n}", snapshot, f"doc:{n}") for n in range(2 * num_calls + 3 * AT_ONCE)]
    await measure("put", lambda number: store.put(made[number]), num_calls, server)

    async def purge(number: int) -> None:
        await store.purge(Purge(tags=(f"doc:{number}",)), now=NOW)

    await measure("purge of a tag with one entry", purge, max(200, num_calls // 10), server)
    await measure("snapshot", lambda _: store.snapshot(), num_calls, server)
    await store.close()


async def through_the_library(url: str, server: redis.Redis, num_calls: int) -> None:
    """The script of a hit, without decoding what it answers."""
    pool = redis.asyncio.Redis.from_url(url)
    run_id = (await pool.info("server"))["run_id"]
    keys = [key_of(f"put {number}") for number in range(NUM_ENTRIES)]

    async def hit(number: int) -> None:
        key = keys[number % NUM_ENTRIES]
        name = name_of(shard_of(key))
        await pool.evalsha(scripts.GET.digest, 1, name, run_id, key, "")

    await measure("script of a hit, redis-py's pool", hit, num_calls, server)
    await pool.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--calls", type=int, default=5000)
    arguments = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"redis-py {redis.__version__}, hiredis {hiredis.__version__}, {NUM_SHARDS} shards")
    if arguments.url:
        asyncio.run(run(arguments.url, arguments.calls))
        return
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(folder).start()
        try:
            with server.client() as client:
                print(f"Redis {client.info('server')['redis_version']} on the loopback")
            asyncio.run(run(server.url, arguments.calls))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
