"""Several proxies on one Redis, over real sockets."""

import asyncio
import contextlib

import pytest
from misbehaving import serving
from redis_servers import RedisServer
from running import CONFIG, good, running

DEADLINE_S = 60


@pytest.fixture(autouse=True)
async def deadline():
    async with asyncio.timeout(DEADLINE_S):
        yield


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
