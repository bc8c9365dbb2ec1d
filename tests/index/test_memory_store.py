"""What is special about the store in memory: its byte bound."""

import random
import tracemalloc

from sample_entries import NOW, entry, key_of

from index.memory import MemoryStore
from index.store import Purge, Stored

BOUND = 8 * 2**20


async def fill(store, num_entries, chance):
    snapshot = await store.snapshot()
    evicted = 0
    for number in range(num_entries):
        one = entry(
            str(number),
            snapshot,
            payload=chance.randbytes(chance.randint(100, 8000)),
            canonical=chance.randbytes(1000),
            extra_tags=tuple(f"doc:{number}:{tag}" for tag in range(5)),
        )
        outcome = await store.put(one)
        assert isinstance(outcome, Stored)
        evicted += outcome.evicted
        assert (await store.stats()).memory_bytes <= BOUND
    return evicted


async def test_bound_holds_and_the_bytes_counted_are_the_bytes_taken():
    chance = random.Random(1)
    tracemalloc.start()
    store = MemoryStore(max_bytes=BOUND)
    evicted = await fill(store, 4000, chance)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stats = await store.stats()
    assert stats.evictions == evicted > 0
    assert stats.memory_bytes > 0.95 * BOUND
    assert taken < 1.05 * BOUND
    await store.check_integrity()


async def test_evicted_entry_is_absent_and_the_feed_says_so():
    store = MemoryStore(max_bytes=BOUND)
    await fill(store, 3000, random.Random(2))
    put, deleted, cursor = set(), set(), 0
    while True:
        changes = await store.changes(cursor, limit=500)
        put |= {one.key for one in changes.put}
        deleted |= set(changes.deleted)
        if changes.cursor == cursor:
            break
        cursor = changes.cursor
    assert len(put) == (await store.stats()).entries
    for number in range(3000):
        found = await store.get(key_of(str(number)), now=NOW)
        assert (found.entry is not None) == (key_of(str(number)) in put)


async def test_entry_in_use_stays_while_others_pass():
    store = MemoryStore(max_bytes=BOUND)
    snapshot = await store.snapshot()
    await store.put(entry("used", snapshot, payload=bytes(4000)))
    for number in range(5000):
        await store.put(entry(str(number), snapshot, payload=bytes(4000)))
        assert (await store.get(key_of("used"), now=NOW)).entry is not None
    assert (await store.stats()).evictions > 3000


async def test_follower_too_far_behind_is_told_to_begin_anew():
    store = MemoryStore(max_bytes=64 * 2**20)
    snapshot = await store.snapshot()
    await store.put(entry("a", snapshot))
    cursor = (await store.changes(0, limit=10)).cursor
    for _ in range(10_001):
        await store.put(entry("b", snapshot))
        await store.delete(key_of("b"))
    assert (await store.changes(cursor, limit=10)).reset
    again = await store.changes(0, limit=10)
    assert [one.key for one in again.put] == [key_of("a")]
    assert not (await store.changes(again.cursor, limit=10)).reset


async def test_two_stores_do_not_take_each_others_entries():
    one, other = MemoryStore(max_bytes=BOUND), MemoryStore(max_bytes=BOUND)
    made = entry("a", await one.snapshot())
    assert (await other.put(made)).reason == "generation"


async def test_purge_of_a_large_store_does_not_count_but_a_dry_run_does():
    store = MemoryStore(max_bytes=2**26)
    snapshot = await store.snapshot()
    for number in range(10_001):
        await store.put(entry(str(number), snapshot))
    purge = Purge(tags=("tenant:acme",))
    dry = await store.purge(Purge(tags=("tenant:acme",), dry_run=True), now=NOW)
    purged = await store.purge(purge, now=NOW)
    assert (dry.matched, purged.matched) == (10_001, None)
    assert (await store.get(key_of("1"), now=NOW)).reason == "purged"
    assert await store.sweep(now=NOW) == 10_001
