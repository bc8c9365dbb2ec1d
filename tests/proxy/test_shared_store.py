"""Several proxies on one Redis, over real sockets."""

import asyncio
import contextlib

import pytest
from misbehaving import plain, serving
from redis_servers import RedisServer
from running import CONFIG, completion, good, running, stream_of, wants_stream


@contextlib.asynccontextmanager
async def replicas(url, folder, *, answer=good, number=2, store=""):
    """An upstream, and proxies that share a Redis."""
    async with contextlib.AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(serving(answer))
        config = CONFIG.format(upstream=upstream.url, options="", policy="")
        config += f'store: {{redis: "{url}"{store}}}\n'
        proxies = [await stack.enter_async_context(running(config, folder)) for _ in range(number)]
        yield upstream, *proxies


def outcome(answer):
    return answer.status_code, answer.headers.get("x-cache")


async def test_answer_that_one_replica_made_is_a_hit_in_the_other(empty_redis, tmp_path):
    async with replicas(empty_redis.url, tmp_path) as (upstream, here, there):
        assert outcome(await here.ask()) == (200, "miss")
        assert outcome(await there.ask()) == (200, "exact")
        assert outcome(await there.ask(stream=True)) == (200, "exact")
    assert len(upstream.requests) == 1


async def test_purge_sent_to_one_replica_holds_in_the_other_when_it_returns(empty_redis, tmp_path):
    async with replicas(empty_redis.url, tmp_path) as (_, here, there):
        for number in range(1, 6, 2):
            assert outcome(await here.ask(headers={"x-cache-tags": "doc:1"})) == (200, "miss")
            assert outcome(await there.ask()) == (200, "exact")
            purged = await here.purge(tags=["doc:1"])
            assert (purged["matched"], purged["sequence"]) == (1, number)
            assert outcome(await there.ask(headers={"x-cache-tags": "doc:1"})) == (200, "miss")
            assert outcome(await here.ask()) == (200, "exact")
            await there.purge(all=True)


async def test_request_goes_on_without_a_cache_while_redis_is_gone(tmp_path):
    server = RedisServer(tmp_path / "redis").start()
    try:
        async with replicas(server.url, tmp_path, number=1) as (upstream, proxy):
            assert outcome(await proxy.ask()) == (200, "miss")
            assert outcome(await proxy.ask()) == (200, "exact")
            server.stop()
            for _ in range(3):
                assert outcome(await proxy.ask()) == (200, "miss")
            assert len(upstream.requests) == 4
            purge = await proxy.http.post(f"{proxy.admin_url}/cache/purge", json={"all": True})
            assert purge.status_code >= 500
            server.start()
            while outcome(await proxy.ask()) != (200, "exact"):
                await asyncio.sleep(0.02)
    finally:
        server.stop()


class Gate:
    """An upstream that answers each request with its number, once the gate is open."""

    def __init__(self):
        self.open = asyncio.Event()
        self.asked = 0
        self.fails_first = False

    async def __call__(self, request, writer):
        self.asked += 1
        number = self.asked
        await self.open.wait()
        if self.fails_first and number == 1:
            writer.write(plain(b'{"error": {"message": "broken"}}', status="500 Broken"))
        elif wants_stream(request):
            writer.write(stream_of("answer ", str(number)))
        else:
            writer.write(plain(completion(f"answer {number}")))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.01)


def looks_at_leases(server):
    """Reads of plain values, which nothing but leases makes here."""
    with server.client() as client:
        return client.info("commandstats")["cmdstat_get"]["calls"]


async def begin(proxy, gate, **question):
    """Ask; the request is at the upstream when this returns."""
    asking = asyncio.create_task(proxy.ask(**question))
    asked = gate.asked
    await until(lambda: gate.asked > asked)
    return asking


async def wait_too(proxy, server, **question):
    """Ask; the request waits for another replica when this returns."""
    looks = looks_at_leases(server)
    asking = asyncio.create_task(proxy.ask(**question))
    await until(lambda: looks_at_leases(server) > looks)
    return asking


@pytest.mark.parametrize("streams", [(False, False, False), (True, False, True)])
async def test_same_miss_on_three_replicas_is_one_upstream_request(empty_redis, tmp_path, streams):
    gate = Gate()
    async with replicas(empty_redis.url, tmp_path, answer=gate, number=3) as (_, *proxies):
        first, *others = proxies
        asking = [await begin(first, gate, stream=streams[0])]
        for proxy, stream in zip(others, streams[1:], strict=True):
            asking.append(await wait_too(proxy, empty_redis, stream=stream))
        gate.open.set()
        answers = await asyncio.gather(*asking)
    assert [outcome(one) for one in answers] == [
        (200, "miss"), (200, "coalesced"), (200, "coalesced"),
    ]  # fmt: skip
    assert gate.asked == 1
    assert all("1" in one.text for one in answers)


async def test_replicas_that_shall_not_wait_each_ask(empty_redis, tmp_path):
    gate = Gate()
    gate.open.set()
    store = ", lease: 0s"
    async with replicas(empty_redis.url, tmp_path, answer=gate, store=store) as (_, *proxies):
        gate.open.clear()
        asking = [asyncio.create_task(proxy.ask()) for proxy in proxies]
        await until(lambda: gate.asked == 2)
        gate.open.set()
        assert [outcome(one) for one in await asyncio.gather(*asking)] == [(200, "miss")] * 2


async def test_replica_that_waited_in_vain_asks_itself(empty_redis, tmp_path):
    gate = Gate()
    gate.fails_first = True
    async with replicas(empty_redis.url, tmp_path, answer=gate) as (_, here, there):
        asking = [await begin(here, gate), await wait_too(there, empty_redis)]
        gate.open.set()
        first, second = await asyncio.gather(*asking)
    assert outcome(first)[0] == 500
    assert outcome(second) == (200, "miss")
    assert gate.asked == 2


async def test_replica_does_not_take_an_answer_that_a_purge_has_overtaken(empty_redis, tmp_path):
    gate = Gate()
    tags = {"x-cache-tags": "doc:1"}
    async with replicas(empty_redis.url, tmp_path, answer=gate) as (_, here, there):
        asking = [await begin(here, gate, headers=tags)]
        await there.purge(tags=["doc:1"])
        asking.append(await wait_too(there, empty_redis, headers=tags))
        gate.open.set()
        first, second = await asyncio.gather(*asking)
    assert "answer 1" in first.text
    assert "answer 2" in second.text


async def test_replica_asks_itself_when_the_store_goes_while_it_waits(tmp_path):
    server = RedisServer(tmp_path / "redis").start()
    gate = Gate()
    try:
        async with replicas(server.url, tmp_path, answer=gate) as (_, here, there):
            asking = [await begin(here, gate), await wait_too(there, server)]
            server.stop()
            await until(lambda: gate.asked == 2)
            gate.open.set()
            assert [one.status_code for one in await asyncio.gather(*asking)] == [200, 200]
    finally:
        server.stop()


async def test_replica_whose_only_listener_leaves_waits_no_longer(empty_redis, tmp_path):
    gate = Gate()
    async with replicas(empty_redis.url, tmp_path, answer=gate) as (_, here, there):
        first, second = await begin(here, gate), await wait_too(there, empty_redis)
        second.cancel()
        await until(lambda: there.proxy.in_flight() == 0)
        gate.open.set()
        assert outcome(await first) == (200, "miss")
    assert gate.asked == 1


async def test_answer_just_made_is_not_made_again_behind_a_filter_that_lags(empty_redis, tmp_path):
    store = ", filter: 1MiB"
    async with replicas(empty_redis.url, tmp_path, store=store) as (upstream, here, there):
        for number in range(10):
            text = f"What is {number}?"
            assert outcome(await here.ask(text)) == (200, "miss")
            assert outcome(await there.ask(text)) in ((200, "exact"), (200, "coalesced"))
    assert len(upstream.requests) == 10
