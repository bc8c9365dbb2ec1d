"""The semantic tier over a real embeddings server: several languages, its death, another model."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from embedding_process import EmbeddingProcess
from misbehaving import serving
from redis_servers import RedisServer
from running import Running, good, running

from index.embedders import remote_embedder
from proxy.lookup import embedding

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
embedder:
  model: e5-query
  base_url: "{embedder}"
  prefix: "query: "
  scripts: any
policies:
  standard:
    ttl: 1h
    share: everyone
    semantic: {{profile: intent, threshold: 0.9, audit: 0, deadline: 30s}}
    volatile: {{classifier: false}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddingProcess]:
    made = EmbeddingProcess()
    yield made.start()
    made.stop()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(remote_embedder, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(embedding, "_FIRST_PAUSE_S", 0.01)


@pytest.fixture
async def upstream() -> AsyncIterator[str]:
    async with serving(good) as server:
        yield server.url


def config(upstream: str, server: EmbeddingProcess) -> str:
    return CONFIG.format(upstream=upstream, embedder=server.base_url)


async def outcome(proxy: Running, text: str) -> str:
    answer = await proxy.ask(text)
    assert answer.status_code == 200
    return answer.headers["x-cache"].lower()


async def state(proxy: Running) -> str:
    return (await proxy.proxy.health.report())["embedder"]


async def metrics(proxy: Running) -> str:
    return (await proxy.http.get(f"{proxy.admin_url}/metrics")).text


async def until_ready(proxy: Running) -> None:
    async with asyncio.timeout(60):
        while await state(proxy) != "ready":
            await asyncio.sleep(0.01)


async def test_paraphrases_in_several_scripts_share_an_answer(
    upstream: str, server: EmbeddingProcess, tmp_path: Path
) -> None:
    async with running(config(upstream, server), tmp_path) as proxy:
        await proxy.ask("How can I change my delivery address?")
        await proxy.ask("我怎样才能更改收货地址")
        assert await outcome(proxy, "How could I change my delivery address?") == "semantic"
        assert await outcome(proxy, "我怎么才能更改收货地址") == "semantic"
        assert await outcome(proxy, "What is the boiling point of nitrogen?") == "miss"


async def test_a_server_that_is_down_at_the_start_is_used_when_it_comes(
    upstream: str, tmp_path: Path
) -> None:
    late = EmbeddingProcess()
    async with running(config(upstream, late), tmp_path) as proxy:
        assert await outcome(proxy, "How can I change my delivery address?") == "miss"
        assert "cannot connect" in await state(proxy)
        try:
            late.start()
            await until_ready(proxy)
            await proxy.ask("How do I close my account?")
            assert await outcome(proxy, "How can I close my account?") == "semantic"
        finally:
            late.stop()


async def test_a_damaged_model_is_named_by_health_and_costs_no_answer(
    upstream: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "modules.json").write_text("[]")
    (model / "config.json").write_text("{")
    text = CONFIG.format(upstream=upstream, embedder="")
    text = text.replace("model: e5-query", f"model: {model}").replace('  base_url: ""\n', "")
    async with running(text, tmp_path) as proxy:
        async with asyncio.timeout(60):
            while await state(proxy) == "loading":
                await asyncio.sleep(0.01)
        assert f"{model / 'config.json'} cannot be read" in await state(proxy)
        assert await outcome(proxy, "How do I close my account?") == "miss"
        assert await outcome(proxy, "How do I close my account?") == "exact"


async def test_a_server_that_dies_and_returns_with_another_model_gets_an_index_of_its_own(
    upstream: str, tmp_path: Path
) -> None:
    server = EmbeddingProcess().start()
    try:
        async with running(config(upstream, server), tmp_path) as proxy:
            await proxy.ask("How do I close my account?")
            before = proxy.proxy._cache.semantic.identity
            server.stop()
            assert await outcome(proxy, "How can I close my account?") == "miss"
            report = await proxy.proxy.health.report()
            assert report["ready"]
            assert "cannot connect" in report["degraded"][0]
            assert "rejoinder_embedder_up 0.0" in await metrics(proxy)
            server.start(variant="enpt")
            async with asyncio.timeout(60):
                while proxy.proxy._cache.semantic.identity in ("", before):
                    await asyncio.sleep(0.01)
            assert (await proxy.proxy.health.report())["degraded"] == []
            assert "rejoinder_embedder_up 1.0" in await metrics(proxy)
            # What the first model embedded is found in its own words only.
            assert await outcome(proxy, "How could I close my account?") == "miss"
            assert await outcome(proxy, "How do I close my account?") == "exact"
    finally:
        server.stop()


async def test_replicas_on_one_redis_find_each_others_answers_at_once_and_lose_purged_ones(
    upstream: str, server: EmbeddingProcess, empty_redis: RedisServer, tmp_path: Path
) -> None:
    text = config(upstream, server) + f'store: {{redis: "{empty_redis.url}"}}\n'
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with running(text, tmp_path / "one") as one, running(text, tmp_path / "two") as two:
        assert not one.proxy._cache.semantic.vectors.follows
        answer = await one.ask("How do I close my account?", headers={"x-cache-tags": "faq"})
        assert answer.status_code == 200
        await one.proxy._cache.semantic.vectors.settle()
        assert await outcome(two, "How can I close my account?") == "semantic"
        await one.purge(tags=["faq"])
        assert await outcome(two, "How could I close my account?") == "miss"


async def test_a_dead_redis_costs_hits_and_no_answers(
    upstream: str, server: EmbeddingProcess, tmp_path: Path
) -> None:
    redis = RedisServer(tmp_path / "redis").start()
    try:
        text = config(upstream, server) + f'store: {{redis: "{redis.url}"}}\n'
        async with running(text, tmp_path) as proxy:
            await proxy.ask("How do I close my account?")
            redis.stop()
            for wording in ("do", "can", "could"):
                assert await outcome(proxy, f"How {wording} I close my account?") == "miss"
    finally:
        redis.stop()
