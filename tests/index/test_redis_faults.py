"""What a Redis can do to us. Never a wrong or purged answer, no hang, and recovery by itself."""

import asyncio
import shutil

import pytest
from redis_servers import RedisServer
from relay import Relay
from sample_entries import NOW, entry, key_of

from index.errors import StoreFault, StoreUnusable
from index.redis import RedisStore
from index.store import NotStored, Purge, Stored

MIB = 2**20
PATIENCE_S = 60
"""Nothing here takes as long, on any machine; what hangs, hangs for ever."""


@pytest.fixture
def server(tmp_path):
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.stop()


@pytest.fixture
def replica(tmp_path, server):
    replica = RedisServer(tmp_path / "replica", "--replicaof", "127.0.0.1", str(server.port))
    yield replica
    replica.stop()


async def connect(url, **options):
    settings = {"memory_bytes": 16 * MIB, "max_bytes": 64 * MIB, "deadline_s": 5, "patient_s": 10}
    return await RedisStore.open(url, **settings | options)


@pytest.fixture
async def store(server):
    store = await connect(server.url)
    yield store
    await store.close()


async def put(store, name, *tags, **changes):
    one = entry(name, await store.snapshot(), extra_tags=tags, **changes)
    assert isinstance(await store.put(one), Stored)


async def reason(store, name):
    return (await store.get(key_of(name), now=NOW)).reason


async def recovered(store, name):
    """What the store knows of a name, once it can be asked again."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await reason(store, name)
            except StoreFault:
                await asyncio.sleep(0.02)


async def replicated(replica, key):
    """The replica has an entry."""
    async with asyncio.timeout(PATIENCE_S):
        while not has_entry(replica, key):
            await asyncio.sleep(0.02)


def has_entry(server, key):
    with server.client() as client:
        return any(name.endswith(key.encode()) for name in client.scan_iter("*:entry:*"))


async def test_stopped_redis_is_a_fault_and_an_empty_one_after_it_a_new_beginning(server, store):
    await put(store, "a")
    assert await reason(store, "a") == "fresh"
    in_flight = entry("b", await store.snapshot())
    server.stop()
    for call in (reason(store, "a"), store.snapshot(), store.put(in_flight), store.stats()):
        with pytest.raises(StoreFault):
            await call
    server.start()
    assert await recovered(store, "a") == "absent"
    assert await store.put(in_flight) == NotStored(reason="generation")
    await put(store, "a")
    assert await reason(store, "a") == "fresh"
    await store.check_integrity()


async def test_flushed_redis_voids_the_memory_tier_and_what_is_being_made(server, store):
    await put(store, "a")
    assert await reason(store, "a") == "fresh"
    in_flight = entry("b", await store.snapshot())
    with server.client() as client:
        client.flushall()
    assert await reason(store, "a") == "absent"
    assert await store.put(in_flight) == NotStored(reason="generation")
    await put(store, "a")
    assert await reason(store, "a") == "fresh"


async def test_entry_written_back_after_a_flush_is_not_believed(server, store):
    """As a tool would that restores single keys."""
    await put(store, "a")
    with server.client() as client:
        kept = {name: client.dump(name) for name in client.scan_iter("*")}
        client.flushall()
        for name, dump in kept.items():
            if b":state" not in name:
                client.restore(name, 0, dump)
    assert await reason(store, "a") == "purged"
    await store.sweep(now=NOW)
    assert (await store.stats()).entries == 0


async def test_older_backup_does_not_bring_purged_entries_back(server, store):
    await put(store, "a", "doc:1")
    await put(store, "b")
    with server.client() as client:
        client.save()
    backup = server.folder / "dump.rdb"
    shutil.copy(backup, server.folder / "backup")
    await store.purge(Purge(tags=("doc:1",)), now=NOW)
    for _ in range(2):  # as many purges as the backup has not seen, and one more
        server.stop()
        shutil.copy(server.folder / "backup", backup)
        server.start()
        assert has_entry(server, key_of("a"))
        assert await recovered(store, "a") == "purged"
        assert await recovered(store, "b") == "purged"
    fresh = await connect(server.url)
    assert await reason(fresh, "a") == "purged"
    assert fresh.secret == store.secret
    await fresh.close()


async def test_replica_that_missed_a_purge_and_became_master_serves_nothing_old(server, replica):
    async with Relay(server.port) as relay:
        store = await connect(relay.url)
        await put(store, "a", "doc:1")
        assert await reason(store, "a") == "fresh"
        replica.start()
        await replicated(replica, key_of("a"))
        with replica.client() as client:
            client.execute_command("REPLICAOF", "NO", "ONE")
        await store.purge(Purge(tags=("doc:1",)), now=NOW)
        server.stop()
        assert has_entry(replica, key_of("a"))
        relay.fail_over(replica.port)
        assert await recovered(store, "a") == "purged"
        await put(store, "a", "doc:1")
        assert await reason(store, "a") == "fresh"
        await store.close()


async def test_replica_is_not_read(server, replica):
    async with Relay(server.port) as relay:
        store = await connect(relay.url)
        await put(store, "a")
        replica.start()
        await replicated(replica, key_of("a"))
        await store.close()
        relay.fail_over(replica.port)
        with pytest.raises(StoreUnusable, match="READONLY"):
            await connect(relay.url)


async def test_master_that_became_a_replica_meanwhile_is_not_believed(server, replica):
    """The connection goes on; what it leads to lags behind somebody else's purges now."""
    store = await connect(server.url)
    await put(store, "a", "doc:1")
    assert await reason(store, "a") == "fresh"
    replica.start()
    await replicated(replica, key_of("a"))
    with replica.client() as promoted, server.client() as demoted:
        promoted.execute_command("REPLICAOF", "NO", "ONE")
        demoted.execute_command("REPLICAOF", "127.0.0.1", replica.port)
    with pytest.raises(StoreFault):
        await reason(store, "a")
    await store.close()


async def test_paused_redis_costs_one_deadline_then_nothing_until_it_goes_on(server):
    store = await connect(server.url, deadline_s=0.2, patient_s=0.5)
    await put(store, "a")
    assert await reason(store, "a") == "fresh"
    server.pause()
    try:
        async with asyncio.timeout(PATIENCE_S):
            waiting = [asyncio.ensure_future(reason(store, "a")) for _ in range(10)]
            faults = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(fault, StoreFault) for fault in faults)
            get = store.get(key_of("a"), now=NOW)
            with pytest.raises(StoreFault):
                get.send(None)  # at once: it does not even wait
            with pytest.raises(StoreFault, match="purge"):
                await store.purge(Purge(everything=True), now=NOW)
    finally:
        server.go_on()
    assert await recovered(store, "b") == "absent"
    await store.close()


async def test_slow_network_is_a_fault_and_its_late_reply_answers_nobody_else(server):
    async with Relay(server.port) as relay:
        store = await connect(relay.url, deadline_s=0.3)
        await put(store, "a", payload=b"of a")
        await put(store, "b", payload=b"of b")
        relay.flowing.clear()
        with pytest.raises(StoreFault, match="within 300 ms"):
            await reason(store, "a")
        relay.flowing.set()
        assert await recovered(store, "b") == "fresh"
        assert (await store.get(key_of("b"), now=NOW)).entry.payload == b"of b"
        await store.close()


async def test_cancelled_get_does_not_shift_the_replies_of_others(server, store):
    await put(store, "a", payload=b"of a")
    await put(store, "b", payload=b"of b")
    async with Relay(server.port) as relay:
        slow = await connect(relay.url)
        relay.flowing.clear()
        left = asyncio.ensure_future(slow.get(key_of("a"), now=NOW))
        stays = asyncio.ensure_future(slow.get(key_of("b"), now=NOW))
        await asyncio.sleep(0)
        left.cancel()
        relay.flowing.set()
        assert (await stays).entry.payload == b"of b"
        await slow.close()


async def test_purge_says_when_too_few_replicas_have_acknowledged_it(server, replica):
    store = await connect(server.url, num_replicas=1, patient_s=2)
    await put(store, "a", "doc:1")
    with pytest.raises(StoreFault, match="only 0 of the 1 replicas"):
        await store.purge(Purge(tags=("doc:1",)), now=NOW)
    assert await reason(store, "a") in ("absent", "purged")  # it counts here all the same
    replica.start()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await store.purge(Purge(tags=("doc:1",)), now=NOW)
                break
            except StoreFault:
                await asyncio.sleep(0.02)
    await store.close()


async def test_many_who_find_the_counters_lost_agree_on_one_generation(server):
    stores = [await connect(server.url) for _ in range(5)]
    for _ in range(5):
        with server.client() as client:
            client.flushall()
        await asyncio.gather(*(reason(one, str(n)) for n in range(20) for one in stores))
        await stores[0].purge(Purge(tags=("doc:1",)), now=NOW)
        generations = {(await one.snapshot()).generation for one in stores}
        assert len(generations) == 1
    for one in stores:
        await one.close()


async def test_forgotten_scripts_are_sent_again(server, store):
    await put(store, "a")
    with server.client() as client:
        client.script_flush()
    assert await reason(store, "a") == "fresh"


async def test_redis_that_is_not_there_cannot_be_opened():
    with pytest.raises(StoreUnusable, match=r"127\.0\.0\.1:1.*refused|Connect call failed"):
        await connect("redis://127.0.0.1:1/0", patient_s=0.2)


async def test_policy_that_may_evict_counters_is_refused(server):
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(StoreUnusable, match="allkeys-lru"):
            await connect(server.url)
        client.config_set("maxmemory-policy", "volatile-lfu")
    await (await connect(server.url)).close()


async def test_full_redis_refuses_puts_and_still_serves_and_purges(server, store):
    await put(store, "a", "doc:1")
    with server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreFault, match="OOM"):
            await store.put(entry("b", await store.snapshot()))
        assert await reason(store, "a") == "fresh"
        assert (await store.purge(Purge(tags=("doc:1",)), now=NOW)).matched == 1
        assert await reason(store, "a") == "absent"


async def test_password_is_needed_and_never_shown(tmp_path):
    server = RedisServer(tmp_path / "redis").start()
    try:
        with server.client() as client:
            client.config_set("requirepass", "open sesame")
        right = f"redis://:open%20sesame@127.0.0.1:{server.port}/1"
        store = await connect(right)
        await put(store, "a")
        await store.close()
        with pytest.raises(StoreUnusable, match="WRONGPASS") as refused:
            await connect(right.replace("sesame", "simsim"), patient_s=1)
        assert "simsim" not in str(refused.value)
    finally:
        server.stop()
