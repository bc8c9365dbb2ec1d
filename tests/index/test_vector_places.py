"""Both places of vectors keep the same promises: in the process, and in a real Redis or cluster."""

import contextlib
from collections.abc import AsyncIterator

import msgspec
import numpy as np
import pytest
from redis_servers import RedisServer
from sample_entries import NOW, entry

from index.entry import Entry
from index.errors import StoreFault
from index.nearest.localvectors import LocalVectors
from index.redis import RedisStore
from index.redis.vectors import RedisVectors
from index.store import Purge

DIMENSION = 16
IDENTITY = "model/16"


def unit(seed: int) -> np.ndarray:
    row = np.random.default_rng(seed).normal(size=DIMENSION).astype("<f4")
    return row / np.linalg.norm(row)


class Local:
    """Told of what is stored and freed, as the change feed does."""

    def __init__(self) -> None:
        self.place = LocalVectors(identity=IDENTITY, dimension=DIMENSION)

    async def put(self, one: Entry) -> None:
        self.place.add(one)

    async def free(self, key: str) -> None:
        self.place.remove(key)

    def check(self) -> None:
        self.place.check_integrity()


class InRedis:
    """Entries go into the store as well, whose scripts note what they free."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.place = store.vectors(identity=IDENTITY, dimension=DIMENSION)
        assert isinstance(self.place, RedisVectors)
        self.place._clock = lambda: NOW

    async def put(self, one: Entry) -> None:
        one = msgspec.structs.replace(one, snapshot=await self.store.snapshot())
        await self.store.put(one)
        self.place.add(one)
        await self.place.settle()

    async def free(self, key: str) -> None:
        await self.store.delete(key)
        await self.store.sweep(now=NOW)

    def check(self) -> None:
        pass


@contextlib.asynccontextmanager
async def in_redis(url: str, **more) -> AsyncIterator[InRedis]:
    settings = {"memory_bytes": 2**20, "max_bytes": 2**26, "deadline_s": 30, "patient_s": 30}
    store = await RedisStore.open(url, **settings | more)
    try:
        yield InRedis(store)
        await store.check_integrity()
    finally:
        await store.close()


@pytest.fixture(params=["local", "redis", "cluster"])
async def kept(request: pytest.FixtureRequest) -> AsyncIterator[Local | InRedis]:
    if request.param == "local":
        made = Local()
        yield made
        made.check()
        await made.place.close()
        return
    url = (
        request.getfixturevalue("empty_redis").url
        if request.param == "redis"
        else request.getfixturevalue("empty_cluster")[0].url
    )
    async with in_redis(url) as made:
        yield made
        await made.place.close()


@pytest.fixture
async def redis_place(empty_redis: RedisServer) -> AsyncIterator[InRedis]:
    async with in_redis(empty_redis.url) as made:
        yield made
        await made.place.close()


def sample(name: str, seed: int, *, scope: str = "s1", **changes) -> Entry:
    settings = {
        "scope": scope,
        "prompt": name,
        "embedder": IDENTITY,
        "embedding": unit(seed).tobytes(),
        "keep_until": NOW + 100,
    }
    return entry(name, None, **settings | changes)


async def found(kept: Local | InRedis, seed: int, *, scope: str = "s1", limit: int = 3) -> list:
    return [one.prompt for one in await kept.place.search(scope, unit(seed), limit=limit)]


async def test_the_nearest_of_the_scope_come_best_first_with_their_cosine(
    kept: Local | InRedis,
) -> None:
    for seed in range(50):
        await kept.put(sample(f"e{seed}", seed, scope=f"s{seed % 2}"))
    cosines = {f"e{seed}": float(unit(seed) @ unit(99)) for seed in range(1, 50, 2)}
    candidates = await kept.place.search("s1", unit(99), limit=5)
    expected = sorted(cosines, key=lambda name: -cosines[name])[:5]
    assert [one.prompt for one in candidates] == expected
    assert [one.similarity for one in candidates] == pytest.approx(
        [cosines[name] for name in expected], abs=0.01
    )
    assert candidates[0].key == sample(expected[0], 0).key


async def test_an_unknown_scope_has_no_candidates(kept: Local | InRedis) -> None:
    assert await found(kept, 1, scope="nowhere") == []


async def test_what_was_freed_is_found_no_more(kept: Local | InRedis) -> None:
    await kept.put(sample("a", 1))
    await kept.put(sample("b", 2))
    await kept.free(sample("a", 1).key)
    assert await found(kept, 1) == ["b"]


async def test_another_answer_to_the_same_request_takes_the_place_of_the_first(
    kept: Local | InRedis,
) -> None:
    await kept.put(sample("a", 1))
    await kept.put(sample("a", 1))
    if isinstance(kept, InRedis):
        await kept.store.sweep(now=NOW)
    assert await found(kept, 1) == ["a"]


@pytest.mark.parametrize(
    "changes",
    [
        {"embedder": "model/old"},
        {"embedding": unit(1)[:-1].tobytes()},
        {"embedder": "", "embedding": b""},
        {"scope": ""},
    ],
    ids=["another embedder", "another dimension", "none", "no scope"],
)
async def test_what_cannot_be_compared_is_not_held(kept: Local | InRedis, changes: dict) -> None:
    await kept.put(sample("a", 1, **changes))
    assert await found(kept, 1) == []


async def test_an_entry_past_its_time_is_passed_over_before_it_is_swept(
    redis_place: InRedis,
) -> None:
    await redis_place.put(sample("a", 1))
    redis_place.place._clock = lambda: NOW + 101
    assert await found(redis_place, 1) == []


async def test_a_purge_takes_the_vectors_out_of_redis_with_the_next_sweep(
    redis_place: InRedis, empty_redis: RedisServer
) -> None:
    for seed in range(20):
        tags = ("doc:1",) if seed % 2 else ()
        await redis_place.put(sample(f"e{seed}", seed, tags=tags))
    await redis_place.store.purge(Purge(tags=("doc:1",)), now=NOW)
    await redis_place.store.sweep(now=NOW)
    assert len(await found(redis_place, 0, limit=64)) == 10
    with empty_redis.client() as client:
        assert not list(client.scan_iter("*:unplaced"))
        await redis_place.store.purge(Purge(everything=True), now=NOW)
        await redis_place.store.sweep(now=NOW)
        assert not list(client.scan_iter("*:vectors:*"))


async def test_a_set_outlives_the_last_of_its_entries_by_little(
    redis_place: InRedis, empty_redis: RedisServer
) -> None:
    redis_place.place._clock = lambda: NOW
    await redis_place.put(sample("long", 1, keep_until=NOW + 5000))
    await redis_place.put(sample("short", 2, keep_until=NOW + 10))
    with empty_redis.client() as client:
        (name,) = client.scan_iter("*:vectors:*")
        assert 5000 < client.ttl(name) <= 5600


async def test_a_vector_that_was_lost_on_its_way_is_put_in_by_who_sweeps(
    redis_place: InRedis, empty_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.redis.vectors._PATIENCE_S", -1)
    snapshot = await redis_place.store.snapshot()
    for lost in (sample("lost", 1), sample("freed", 2)):
        await redis_place.store.put(msgspec.structs.replace(lost, snapshot=snapshot))
    await redis_place.store.delete(sample("freed", 2).key)
    assert await found(redis_place, 1) == []
    await redis_place.store.sweep(now=NOW)
    assert await found(redis_place, 1) == ["lost"]
    with empty_redis.client() as client:
        assert not list(client.scan_iter("*:owed"))


async def test_a_vector_that_has_arrived_is_owed_no_more(
    redis_place: InRedis, empty_redis: RedisServer
) -> None:
    await redis_place.put(sample("a", 1))
    with empty_redis.client() as client:
        assert not list(client.scan_iter("*:owed"))


@pytest.mark.parametrize(
    ("name", "attributes"),
    [("spoilt", b'{"prompt": 5, "until": 9e12}'), (b"\xff", b'{"prompt": "x", "until": 9e12}')],
)
async def test_what_others_wrote_into_a_set_is_passed_over(
    redis_place: InRedis, empty_redis: RedisServer, name: str | bytes, attributes: bytes
) -> None:
    await redis_place.put(sample("ours", 1))
    with empty_redis.client() as client:
        (place,) = client.scan_iter("*:vectors:*")
        client.execute_command(
            "VADD", place, "FP32", unit(1).tobytes(), name, "NOQUANT", "SETATTR", attributes
        )
    assert await found(redis_place, 1) == ["ours"]


async def test_a_search_is_one_command(redis_place: InRedis, empty_redis: RedisServer) -> None:
    await redis_place.put(sample("a", 1))
    with empty_redis.client() as client:
        before = client.info("stats")["total_commands_processed"]
        assert await found(redis_place, 1) == ["a"]
        assert client.info("stats")["total_commands_processed"] - before == 2  # and INFO


async def test_a_dead_redis_is_a_fault_of_the_search_and_of_nothing_else(tmp_path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    try:
        async with contextlib.AsyncExitStack() as stack:
            settings = {"memory_bytes": 2**20, "max_bytes": 2**26}
            store = await RedisStore.open(server.url, **settings)
            stack.push_async_callback(store.close)
            kept = InRedis(store)
            await kept.put(sample("a", 1))
            server.stop()
            with pytest.raises(StoreFault):
                for _ in range(2):
                    await found(kept, 1)
            kept.place.add(sample("b", 2))
            await kept.place.settle()
            await kept.place.close()
    finally:
        server.stop()


async def test_vectors_stay_in_the_workers_where_the_config_says_so(
    empty_redis: RedisServer,
) -> None:
    store = await RedisStore.open(
        empty_redis.url, memory_bytes=2**20, max_bytes=2**26, vectors=False
    )
    assert store.vectors(identity=IDENTITY, dimension=DIMENSION) is None
    await store.close()
