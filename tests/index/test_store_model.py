"""Each store against a small model: any order of calls, with any old snapshot."""

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sample_entries import NOW, entry, key_of

from index.memory import MemoryStore
from index.purges import RETAIN_S
from index.redis import RedisStore
from index.sqlite import SqliteStore
from index.store import Filter, Purge, Stored

NAMES = st.sampled_from("abcd")
TAGS = st.frozensets(st.sampled_from(["t1", "t2", "t3"]), max_size=3)
MODELS = st.sampled_from(["small", "large"])
TENANTS = st.sampled_from(["acme", "initech"])
PURGES = st.one_of(
    TAGS.map(lambda tags: Purge(tags=tuple(sorted(tags)) or ("t1",))),
    NAMES.map(lambda name: Purge(keys=(key_of(name),))),
    MODELS.map(lambda model: Purge(models=(model,))),
    TENANTS.map(lambda tenant: Purge(tenants=(tenant,))),
    st.just(Purge(everything=True)),
)


class Model:
    """Entries, and after each purge what it covered: no counters."""

    def __init__(self):
        self.entries = {}
        self.soft = set()
        self.purges = []

    def covers(self, purge, one):
        return (
            purge.everything
            or bool(set(purge.tags) & set(one.tags))
            or one.key in purge.keys
            or one.model in purge.models
            or one.tenant in purge.tenants
        )

    def put(self, one):
        missed = self.purges[one.snapshot.sequence :]
        if any(self.covers(purge, one) for purge in missed):
            return False
        self.entries[one.key] = one
        self.soft.discard(one.key)
        return True

    def live(self, now):
        return {key: one for key, one in self.entries.items() if now <= one.keep_until}

    def covered(self, purge, now):
        return [key for key, one in self.live(now).items() if self.covers(purge, one)]

    def purge(self, purge, now):
        self.purges.append(purge)
        covered = [key for key, one in self.entries.items() if self.covers(purge, one)]
        if purge.soft:
            self.soft.update(covered)
        for key in [] if purge.soft else covered:
            del self.entries[key]


class StoreMachine(RuleBasedStateMachine):
    """Calls on a store and the model, compared after each."""

    async def open(self):
        raise NotImplementedError

    @initialize()
    def begin(self):
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.model = Model()
        self.now = NOW
        self.store = self.run(self.open())
        self.snapshots = [(self.now, self.run(self.store.snapshot()))]
        self.known = {}
        self.cursor = 0

    def run(self, call):
        return self.runner.run(call)

    def teardown(self):
        if hasattr(self, "store"):
            self.run(self.store.check_integrity())
            self.run(self.store.close())
            self.runner.close()
            self.folder.cleanup()

    @rule(name=NAMES, tags=TAGS)
    def get(self, name, tags):
        lookup = self.run(self.store.get(key_of(name), now=self.now, tags=tuple(tags)))
        expected = self.model.live(self.now).get(key_of(name))
        if expected is None:
            assert lookup.entry is None
            assert lookup.reason in ("absent", "purged", "expired")
        elif not tags <= set(expected.tags):
            assert (lookup.entry, lookup.reason) == (None, "lacks_tag")
            assert lookup.tags == expected.tags
        else:
            assert lookup.entry == expected
            assert lookup.soft_purged == (expected.key in self.model.soft)
        assert lookup.snapshot.sequence == len(self.model.purges)
        self.snapshots.append((self.now, lookup.snapshot))

    @rule(data=st.data(), name=NAMES, tags=TAGS, model=MODELS, tenant=TENANTS, kept=st.booleans())
    def put(self, data, name, tags, model, tenant, kept):
        taken_at, snapshot = data.draw(st.sampled_from(self.snapshots[-8:]))
        one = entry(
            name,
            snapshot,
            tags=(f"model:{model}", f"tenant:{tenant}", *tags),
            model=model,
            tenant=tenant,
            payload=f"{len(self.snapshots)} {self.now}".encode(),
            keep_until=self.now + (5 * RETAIN_S if kept else 60),
        )
        stored = isinstance(self.run(self.store.put(one)), Stored)
        if not stored and self.now - taken_at >= RETAIN_S:
            return  # the purges that it missed may be forgotten: it is refused to be safe
        assert stored == self.model.put(one)

    @rule(purge=PURGES, soft=st.booleans())
    def purge(self, purge, soft):
        purge = msgspec.structs.replace(purge, soft=soft)
        covered = self.model.covered(purge, self.now)
        dry = msgspec.structs.replace(purge, dry_run=True)
        counted = self.run(self.store.purge(dry, now=self.now))
        purged = self.run(self.store.purge(purge, now=self.now))
        self.model.purge(purge, self.now)
        assert counted.matched == purged.matched == len(covered)
        assert purged.sequence == counted.sequence + 1 == len(self.model.purges)

    @rule(name=NAMES)
    def delete(self, name):
        deleted = self.run(self.store.delete(key_of(name)))
        assert deleted or key_of(name) not in self.model.live(self.now)
        self.model.entries.pop(key_of(name), None)

    @rule(seconds=st.sampled_from([1.0, 100.0, 2 * RETAIN_S]))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def sweep(self):
        self.run(self.store.sweep(now=self.now))
        assert self.run(self.store.stats()).entries == len(self.model.live(self.now))

    @rule(limit=st.integers(1, 5))
    def follow(self, limit):
        while True:
            changes = self.run(self.store.changes(self.cursor, limit=limit))
            for key in changes.deleted:
                self.known.pop(key, None)
            self.known.update((one.key, one) for one in changes.put)
            done, self.cursor = changes.cursor == self.cursor, changes.cursor
            if done:
                break
        for key, one in self.model.live(self.now).items():
            assert self.known[key] == one
        for key in set(self.known) - set(self.model.live(self.now)):
            assert self.run(self.store.get(key, now=self.now)).entry is None

    @invariant()
    def scan_shows_what_is_live(self):
        if hasattr(self, "store"):
            page = self.run(self.store.scan(Filter(), now=self.now, cursor=None, limit=100))
            assert {one.key: one for one in page.entries} == self.model.live(self.now)


class MemoryMachine(StoreMachine):
    async def open(self):
        return MemoryStore(max_bytes=2**20)


class SqliteMachine(StoreMachine):
    async def open(self):
        path = Path(self.folder.name) / "store.db"
        return await SqliteStore.open(path, memory_bytes=2**20, disk_bytes=2**26)

    @rule()
    def restart(self):
        self.run(self.store.close())
        self.store = self.run(self.open())


class RedisMachine(StoreMachine):
    server = None
    filter_bytes = 0

    async def open(self):
        with self.server.client() as client:
            client.flushall()
        return await self.connect()

    async def connect(self):
        return await RedisStore.open(
            self.server.url,
            memory_bytes=2**20,
            max_bytes=2**26,
            filter_bytes=self.filter_bytes,
            deadline_s=30,
            patient_s=30,
        )

    @rule()
    def restart(self):
        self.run(self.store.close())
        self.store = self.run(self.connect())


QUICK = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("machine", [MemoryMachine, SqliteMachine])
def test_any_order_of_calls_does_what_the_model_does(machine):
    case = machine.TestCase
    case.settings = QUICK
    case().runTest()


@pytest.mark.parametrize("filter_bytes", [0, 2**16])
def test_any_order_of_calls_to_a_redis_does_what_the_model_does(filter_bytes, empty_redis):
    parts = {"server": empty_redis, "filter_bytes": filter_bytes}
    case = type("OneRedis", (RedisMachine,), parts).TestCase
    case.settings = QUICK
    case().runTest()
