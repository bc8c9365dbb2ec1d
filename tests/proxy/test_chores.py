"""A vector index in step with a store, without a pause for those who ask meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from index.entry import Entry, Snapshot
from index.errors import StoreFault
from index.memory import MemoryStore
from index.semantic import NoSemantic
from index.store import Changes
from proxy import chores
from proxy.observing.metrics import Metrics

NUM_ENTRIES = 40


class Slow(NoSemantic):
    """An index in which each entry takes a millisecond."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.time_s = 0.0
        self.cleared = 0
        self.behind: set[str] = set()

    def add(self, entry: Entry) -> None:
        self.time_s += 0.001
        self.held.add(entry.key)

    def remove(self, key: str) -> None:
        self.held.discard(key)

    def is_behind(self, scope: str) -> bool:
        return scope in self.behind

    def clear(self) -> None:
        self.cleared += 1
        self.held.clear()


class Failing(MemoryStore):
    """Its feed fails, then says that it began anew."""

    def __init__(self) -> None:
        super().__init__(max_bytes=2**20)
        self.faults: list[Callable[[], Changes]] = [self._fail, self._reset]

    async def changes(self, cursor: int, *, limit: int) -> Changes:
        return self.faults.pop(0)() if self.faults else await super().changes(cursor, limit=limit)

    def _fail(self) -> Changes:
        raise StoreFault("the disk is gone")

    def _reset(self) -> Changes:
        return Changes(put=(), deleted=(), cursor=7, reset=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "_FOLLOW_EVERY_S", 0)
    monkeypatch.setattr(chores, "_BEHIND_S", 0)


def entry(key: str, snapshot: Snapshot) -> Entry:
    return Entry(
        key=key,
        scope="s",
        tenant="t",
        policy="p",
        upstream="u",
        model="m",
        surface="chat",
        prompt="What is it?",
        canonical=b"{}",
        payload=b"It is this.",
        tags=(),
        snapshot=snapshot,
        created_at=0.0,
        expires_at=1.0,
        keep_until=1.0,
    )


async def fill(store: MemoryStore) -> None:
    snapshot = await store.snapshot()
    for number in range(NUM_ENTRIES):
        await store.put(entry(f"e{number}", snapshot))


async def until(what: Callable[[], bool], following: asyncio.Future[None]) -> None:
    while not what():
        assert not following.done()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def followed(
    store: MemoryStore, index: Slow, metrics: Metrics
) -> AsyncIterator[asyncio.Future[None]]:
    following = asyncio.ensure_future(
        chores.follow(store, index, metrics=metrics, clock=lambda: index.time_s)
    )
    yield following
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def test_a_page_of_entries_is_held_a_few_at_a_time() -> None:
    store, index = MemoryStore(max_bytes=2**20), Slow()
    await fill(store)
    turns = [0.0]
    async with followed(store, index, Metrics()) as following:
        while len(index.held) < NUM_ENTRIES:
            assert not following.done()
            await asyncio.sleep(0)
            turns.append(index.time_s)
    assert max(b - a for a, b in pairwise(turns)) < 0.004


async def test_nothing_more_is_added_to_a_scope_that_is_behind() -> None:
    store, index = MemoryStore(max_bytes=2**20), Slow()
    await fill(store)
    async with followed(store, index, Metrics()) as following:
        await until(lambda: len(index.held) > NUM_ENTRIES // 2, following)
        index.behind, num_held = {"s"}, len(index.held)
        for _ in range(NUM_ENTRIES):
            await asyncio.sleep(0)
        assert len(index.held) == num_held
        index.behind = set()
        await until(lambda: len(index.held) == NUM_ENTRIES, following)


async def test_a_feed_that_fails_is_asked_again_and_one_that_began_anew_read_from_its_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, index, metrics = Failing(), Slow(), Metrics()
    await fill(store)
    async with followed(store, index, metrics) as following:
        await until(lambda: len(index.held) == NUM_ENTRIES, following)
    assert index.cleared == 1
    assert "cannot follow the store: the disk is gone" in caplog.text
    assert metrics.faults.labels("store")._value.get() == 1


async def test_what_is_deleted_is_let_go_of() -> None:
    store, index = MemoryStore(max_bytes=2**20), Slow()
    await fill(store)
    async with followed(store, index, Metrics()) as following:
        await until(lambda: len(index.held) == NUM_ENTRIES, following)
        await store.delete("e3")
        await until(lambda: len(index.held) < NUM_ENTRIES, following)
    assert "e3" not in index.held
