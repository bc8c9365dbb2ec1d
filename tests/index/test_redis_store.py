"""What only the Redis store does: shards, bounds, what Redis drops by itself, secrets, leases."""

import asyncio

import pytest
from redis_servers import RedisServer, start_cluster
from sample_entries import NOW, entry, key_of

from index.errors import StoreFault
from index.purges import tags_of
from index.redis import RedisStore, scripts
from index.redis.door import Door
from index.redis.purging import MAX_COUNTED
from index.redis.shards import HEAD, NUM_SHARDS, name_of, shard_of
from index.store import NotStored, Purge, Stored

MIB = 2**20
PATIENCE_S = 60


async def connect(server, **options):
    settings = {"memory_bytes": MIB, "max_bytes": 64 * MIB, "deadline_s": 30, "patient_s": 30}
    return await RedisStore.open(server.url, **settings | options)


@pytest.fixture
async def store(empty_redis):
    store = await connect(empty_redis)
    yield store
    await store.check_integrity()
    await store.close()


async def put(store, name, *tags, **changes):
    one = entry(name, await store.snapshot(), extra_tags=tags, **changes)
    return await store.put(one)


async def reason(store, name):
    return (await store.get(key_of(name), now=NOW)).reason


async def calls_of(server, call):
    """Commands that Redis was sent while `call` ran, over all connections."""
    with server.client() as client, client.monitor() as monitor:
        await call()
        client.ping()
        sent = []
        while (told := monitor.next_command())["command"] != "PING":
            word = told["command"].split()[0]
            if told["client_type"] != "lua" and word not in ("CLIENT", "HELLO"):
                sent.append(word)
        return sent


async def test_hit_miss_put_and_snapshot_take_one_round_trip_each(store, empty_redis):
    one = entry("a", await store.snapshot())
    calls = {
        "miss": lambda: store.get(key_of("b"), now=NOW),
        "put": lambda: store.put(one),
        "hit": lambda: store.get(key_of("a"), now=NOW),
        "hit in the memory tier": lambda: store.get(key_of("a"), now=NOW),
        "snapshot": store.snapshot,
        "purge": lambda: store.purge(Purge(tags=("doc:1",)), now=NOW),
    }
    for call in calls.values():
        await call()  # now Redis knows the scripts
    await store.delete(one.key)
    for what, call in calls.items():
        expected = NUM_SHARDS if what == "purge" else 1
        assert await calls_of(empty_redis, call) == ["EVALSHA"] * expected, what


async def test_hit_in_the_memory_tier_does_not_move_the_record(store, empty_redis):
    await put(store, "a", payload=bytes(100_000))
    with empty_redis.client() as client:
        first = client.info("stats")["total_net_output_bytes"]
        assert await reason(store, "a") == "fresh"
        second = client.info("stats")["total_net_output_bytes"]
        assert await reason(store, "a") == "fresh"
        third = client.info("stats")["total_net_output_bytes"]
    assert second - first > 100_000 > third - second


async def test_entry_that_another_replica_overwrote_leaves_the_memory_tier(store, empty_redis):
    other = await connect(empty_redis)
    for number in range(10):
        await put(other, "a", payload=b"%d" % number)
        for _ in range(2):
            lookup = await store.get(key_of("a"), now=NOW)
            assert lookup.entry.payload == b"%d" % number
    await other.delete(key_of("a"))
    assert await reason(store, "a") == "absent"
    await other.close()


async def test_secret_is_shared_and_outlives_a_flush_while_somebody_runs(store, empty_redis):
    other = await connect(empty_redis)
    assert other.secret == store.secret != b""
    await other.close()
    with empty_redis.client() as client:
        client.flushall()
    await reason(store, "a")
    other = await connect(empty_redis)
    assert other.secret == store.secret
    await other.close()


async def test_bytes_stay_within_the_bound_and_what_is_worth_most_stays(store, empty_redis):
    small = await connect(empty_redis, max_bytes=2 * MIB)
    for number in range(40):
        assert isinstance(await put(small, f"dear {number}", output_tokens=100_000), Stored)
    evicted = 0
    for number in range(1500):
        outcome = await put(small, f"cheap {number}", output_tokens=1, payload=bytes(2000))
        evicted += outcome.evicted
    stats = await small.stats()
    assert 1.6 * MIB < stats.disk_bytes <= 2 * MIB
    assert evicted == stats.evictions > 500
    for number in range(40):
        assert await reason(small, f"dear {number}") == "fresh"
    await small.check_integrity()
    await small.close()


async def test_entry_that_is_used_outlives_its_equals(empty_redis):
    store = await connect(empty_redis, max_bytes=2 * MIB)
    names = [name for name in map(str, range(500)) if shard_of(key_of(name)) == 3]
    await put(store, names[0], payload=bytes(9_000))
    for _ in range(300):
        await reason(store, names[0])
    for name in names[1:]:
        await put(store, name, payload=bytes(9_000))
    assert (await store.stats()).evictions > 10
    assert await reason(store, names[0]) == "fresh"
    await store.close()


async def test_entry_that_redis_drops_by_itself_is_absent_and_swept_from_the_books(
    store, empty_redis
):
    await put(store, "a", "doc:1")
    await put(store, "b", "doc:1")
    with empty_redis.client() as client:
        name = f"{name_of(shard_of(key_of('a')))}:entry:{key_of('a')}"
        assert 7200 < client.ttl(name) < 8000
        client.delete(name)
    assert await reason(store, "a") == "absent"
    assert await store.sweep(now=NOW) == 1
    assert (await store.stats()).entries == 1
    assert (await store.purge(Purge(tags=("doc:1",)), now=NOW)).matched == 1


async def test_purge_of_few_among_many_counts_and_frees_them_and_of_many_says_it_does_not(store):
    snapshot = await store.snapshot()
    num_many = (MAX_COUNTED + 100) * NUM_SHARDS
    many = [entry(str(n), snapshot, extra_tags=("many",)) for n in range(num_many)]
    for begin in range(0, num_many, 500):
        await asyncio.gather(*map(store.put, many[begin : begin + 500]))
    for number in range(3):
        await put(store, f"few {number}", "few")
    purged = await store.purge(Purge(tags=("few",)), now=NOW)
    assert (purged.matched, purged.entries) == (3, 3)
    purged = await store.purge(Purge(keys=(key_of("7"),)), now=NOW)
    assert (purged.matched, purged.entries) == (1, 1)
    for purge in (Purge(tags=("many",)), Purge(tenants=("acme",)), Purge(everything=True)):
        purged = await store.purge(purge, now=NOW)
        assert (purged.matched, purged.entries) == (None, 0)
    assert await reason(store, "8") == "purged"


async def test_purge_whose_process_died_half_way_stops_no_put_after_the_next_sweep(store):
    door: Door = store._door
    wires = await door.servers.purging_wires()
    arguments = ("", "", 0, repr(NOW), 0, 0, *tags_of(Purge(tags=("doc:1",))))
    await scripts.PURGE.run(wires[HEAD], name_of(HEAD), *arguments)
    elsewhere = next(name for name in map(str, range(99)) if shard_of(key_of(name)) != HEAD)
    assert await put(store, elsewhere) == NotStored(reason="generation")
    await store.sweep(now=NOW)
    assert isinstance(await put(store, elsewhere), Stored)


async def test_lease_is_held_by_one_until_it_is_released(store, empty_redis):
    other = await connect(empty_redis)
    lease = await store.leases.acquire("k", ttl_s=60)
    assert lease is not None
    assert await other.leases.acquire("k", ttl_s=60) is None
    assert await other.leases.wait("k", timeout_s=0.01) is False
    waiting = asyncio.create_task(other.leases.wait("k", timeout_s=PATIENCE_S))
    await asyncio.sleep(0)
    await lease.release()
    assert await waiting is True
    theirs = await other.leases.acquire("k", ttl_s=60, looked=True)
    assert theirs is not None
    await lease.release()  # of a lease that is another's now: not ours to end
    assert await store.leases.acquire("k", ttl_s=60, looked=True) is None
    await theirs.release()
    await other.close()


async def test_lease_that_was_just_released_is_for_those_who_have_looked_again(store):
    lease = await store.leases.acquire("k", ttl_s=60)
    await lease.release()
    assert await store.leases.acquire("k", ttl_s=60) is None
    assert await store.leases.wait("k", timeout_s=PATIENCE_S) is True
    assert await store.leases.acquire("k", ttl_s=60, looked=True) is not None


async def test_lease_of_one_who_died_expires(store):
    assert await store.leases.acquire("k", ttl_s=0.05) is not None
    assert await store.leases.wait("k", timeout_s=PATIENCE_S) is True
    assert await store.leases.acquire("k", ttl_s=60) is not None


async def test_wait_for_a_lease_ends_when_the_store_is_gone(empty_redis):
    store = await connect(empty_redis)
    assert await store.leases.acquire("k", ttl_s=60) is not None
    waiting = asyncio.create_task(store.leases.wait("k", timeout_s=PATIENCE_S))
    await asyncio.sleep(0)
    await store.close()
    assert await waiting is True


async def test_one_of_the_replicas_sweeps_for_all(empty_redis):
    store, other, third = [await connect(empty_redis) for _ in range(3)]
    await put(store, "a", keep_until=NOW)
    assert await store.sweep(now=NOW) == 0
    assert await other.sweep(now=NOW + 1) == 0
    assert await store.sweep(now=NOW + 1) == 1
    await put(store, "a", keep_until=NOW)
    await store.close()
    assert await other.sweep(now=NOW + 1) == 1
    await put(other, "a", keep_until=NOW)
    with empty_redis.client() as client:
        client.delete(f"{name_of(HEAD)}:sweeper")  # as when it has not swept for long
    assert await third.sweep(now=NOW + 1) == 1
    await other.check_integrity()
    await other.close()
    await third.close()


async def purged_at_last(store, purge):
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await store.purge(purge, now=NOW)
            except StoreFault:
                await asyncio.sleep(0.05)


async def test_cluster_that_loses_a_server_faults_then_begins_anew(tmp_path):
    servers = start_cluster(tmp_path)
    try:
        store = await connect(servers[0], deadline_s=5, patient_s=5)
        for number in range(30):
            await put(store, str(number), "doc:1")
        used = {store._door.servers.wire(shard).address.port for shard in range(NUM_SHARDS)}
        assert used == {server.port for server in servers}
        servers[2].stop()
        with pytest.raises(StoreFault):
            await store.purge(Purge(tags=("doc:1",)), now=NOW)
        servers[2].start()
        await purged_at_last(store, Purge(tags=("doc:2",)))
        for number in range(30):
            assert await reason(store, str(number)) in ("purged", "absent")
            assert isinstance(await put(store, str(number)), Stored)
        await store.close()
    finally:
        for server in servers:
            server.stop()


def masters(client):
    """Ports of the servers that have slots, as one of the cluster sees it."""
    return {master[1] for _, _, master, *_ in client.execute_command("CLUSTER", "SLOTS")}


async def test_cluster_whose_replica_takes_over_serves_nothing_from_before(tmp_path):
    servers = start_cluster(tmp_path)
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
    replica = RedisServer(tmp_path / "replica", *options).start()
    try:
        with servers[2].client() as client, replica.client() as joining:
            name = client.cluster("MYID").decode()
            joining.cluster("MEET", "127.0.0.1", servers[0].port)
            async with asyncio.timeout(PATIENCE_S):
                while masters(joining) != {server.port for server in servers}:
                    await asyncio.sleep(0.05)
                joining.cluster("REPLICATE", name)
                while joining.info("replication").get("master_link_status") != "up":
                    await asyncio.sleep(0.05)
        store = await connect(servers[0], deadline_s=5, patient_s=5)
        for number in range(30):
            await put(store, str(number), "doc:1")
        servers[2].stop()
        with replica.client() as client:
            client.cluster("FAILOVER", "TAKEOVER")
        await purged_at_last(store, Purge(tags=("doc:1",)))
        used = {store._door.servers.wire(shard).address.port for shard in range(NUM_SHARDS)}
        assert used == {servers[0].port, servers[1].port, replica.port}
        for number in range(30):
            assert await reason(store, str(number)) in ("purged", "absent")
            assert isinstance(await put(store, str(number)), Stored)
        await store.close()
    finally:
        for server in (*servers, replica):
            server.stop()
