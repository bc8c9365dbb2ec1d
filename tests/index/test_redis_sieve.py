"""The filter of keys that were never stored: what it leaves out, and what it must not."""

import asyncio

import pytest
from sample_entries import NOW, entry, key_of

from index.redis import RedisStore
from index.store import NotStored, Purge, Stored

PATIENCE_S = 60


async def connect(server, *, filter_bytes=2**20):
    return await RedisStore.open(
        server.url,
        memory_bytes=2**20,
        max_bytes=2**26,
        filter_bytes=filter_bytes,
        deadline_s=30,
        patient_s=30,
    )


@pytest.fixture
async def here(empty_redis):
    store = await connect(empty_redis)
    yield store
    await store.close()


@pytest.fixture
async def there(empty_redis):
    store = await connect(empty_redis, filter_bytes=0)
    yield store
    await store.close()


def scripts_run(server):
    with server.client() as client:
        return client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


async def get_unasked(store, names):
    """The first lookup that went without Redis, of names that nobody used before."""
    async with asyncio.timeout(PATIENCE_S):
        for name in names:
            call = store.get(key_of(name), now=NOW)
            try:
                call.send(None)
            except StopIteration as answered:
                return name, answered.value
            call.close()
            await asyncio.sleep(0.01)
    raise AssertionError("no more names")


def fresh_names(prefix):
    return (f"{prefix} {number}" for number in range(10**9))


async def test_key_never_stored_is_not_asked_for_but_once_it_was_it_is(here, there):
    name, lookup = await get_unasked(here, fresh_names("a"))
    assert (lookup.entry, lookup.reason) == (None, "absent")
    assert lookup.snapshot == await there.snapshot()
    assert await there.put(entry(name, lookup.snapshot)) == Stored()
    assert (await here.get(key_of(name), now=NOW)).reason == "fresh"


async def test_second_request_sees_the_purges_that_the_first_may_have_missed(here, there):
    """So it does not join a flight that began before them."""
    name, first = await get_unasked(here, fresh_names("a"))
    await there.purge(Purge(tags=("doc:1",)), now=NOW)
    second = await here.get(key_of(name), now=NOW)
    assert second.snapshot.sequence == 1
    assert first.snapshot.sequence == 0
    late = entry(name, first.snapshot, extra_tags=("doc:1",))
    assert await here.put(late) == NotStored(reason="purged")


async def test_own_purge_is_seen_by_the_next_key_at_once(here):
    await get_unasked(here, fresh_names("a"))
    for number in range(1, 6):
        await here.purge(Purge(tags=("doc:1",)), now=NOW)
        lookup = await here.get(key_of(f"b {number}"), now=NOW)
        assert lookup.snapshot.sequence == number


async def test_what_others_stored_before_and_after_the_start_is_found(empty_redis, there):
    for number in range(50):
        await there.put(entry(f"before {number}", await there.snapshot()))
    here = await connect(empty_redis)
    await get_unasked(here, fresh_names("a"))
    for number in range(50):
        assert (await here.get(key_of(f"before {number}"), now=NOW)).reason == "fresh"
    for number in range(50):
        await there.put(entry(f"after {number}", await there.snapshot()))
    stored_at = asyncio.get_running_loop().time()
    async with asyncio.timeout(PATIENCE_S):
        while here._sieve._known_at < stored_at:
            await asyncio.sleep(0.01)
    for number in range(50):
        assert (await here.get(key_of(f"after {number}"), now=NOW)).reason == "fresh"
    await here.close()


async def test_snapshot_from_before_a_flush_stores_nothing(empty_redis, here, there):
    name, lookup = await get_unasked(here, fresh_names("a"))
    with empty_redis.client() as client:
        client.flushall()
    await there.snapshot()
    assert await here.put(entry(name, lookup.snapshot)) == NotStored(reason="generation")
    name, lookup = await get_unasked(here, fresh_names("b"))
    async with asyncio.timeout(PATIENCE_S):
        while isinstance(await here.put(entry(name, lookup.snapshot)), NotStored):
            name, lookup = await get_unasked(here, fresh_names(f"{name} c"))


async def test_full_filter_lets_every_key_through(empty_redis):
    store = await connect(empty_redis, filter_bytes=100)
    for number in range(200):
        await store.get(key_of(str(number)), now=NOW)
    before = scripts_run(empty_redis)
    for number in range(200, 220):
        await store.get(key_of(str(number)), now=NOW)
    assert scripts_run(empty_redis) - before >= 20
    await store.close()
