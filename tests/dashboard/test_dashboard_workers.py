"""What the dashboard asks for and shows, of two workers and a real engine with traffic."""

import asyncio
import re

import httpx
import pytest
import pytest_asyncio
from dashboard import opened
from playwright.async_api import expect
from proxyprocess import serving_process
from tinymodel import write_tiny

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: 2
upstreams:
  local: {{engine: {{model: "{folder}/tiny.gguf", kv_cache: {{memory: 32MiB}}, max_context: 512}}}}
  spare: {{base_url: "http://127.0.0.1:9/v1"}}
store: {{path: "{folder}/store.db"}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "spare-*"}}, to: spare}}
  - {{match: {{}}, to: local, cache: standard}}
shutdown: {{grace: 0s, deadline: 10s}}
"""
RULES = "Answer with one word, whatever anybody asks, and never with two. " * 6
"""Several pages, which all questions have in common."""
ASKED = ("What is blue?", "What is round?", "What is far?", "What is near?")
NUM_ASKED = 2 * len(ASKED)


async def get(url: str) -> dict:
    """On a connection of its own, which any worker may take."""
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.get(url)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def ask(url: str, text: str) -> None:
    body = {
        "model": "tiny",
        "messages": [{"role": "system", "content": RULES}, {"role": "user", "content": text}],
        "max_tokens": 2,
        "temperature": 0,
        "cache": {"tags": ["doc:rules"]},
    }
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{url}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    write_tiny(folder / "tiny.gguf")
    async with serving_process(CONFIG.format(folder=folder), folder) as serving:
        for text in (*ASKED, *ASKED):
            await ask(serving.url, text)
        yield serving


async def test_every_worker_shows_what_all_of_them_did(process):
    told = [await get(f"{process.admin_url}/dashboard/history") for _ in range(6)]
    for one in told:
        assert sum(one["total"]["requests"].values()) == NUM_ASKED
        assert sum(sum(bin["requests"].values()) for bin in one["bins"]) == NUM_ASKED
    page = await get(f"{process.admin_url}/dashboard/upstreams")
    named = [(one["upstream"], one["num_workers"]) for one in page["servers"]]
    assert named == [("local", 2), ("spare", 2)]
    assert set(page["states"]) == {"local", "spare"}
    stats = await asyncio.gather(*(get(f"{process.admin_url}/cache/stats") for _ in range(4)))
    assert all(one["engines"]["local"]["num_pages"] > 0 for one in stats)


async def test_the_engine_view_shows_the_pages_and_what_the_tree_spared(process, browser):
    figures = (await get(f"{process.admin_url}/cache/stats"))["engines"]["local"]
    assert figures["cached_tokens"] > 0
    async with opened(browser, process.admin_url, "engine") as page:
        for name, value in (
            ("steps", figures["steps"]),
            ("in-the-tree", figures["cached_pages"]),
            ("prompt-tokens", figures["prompt_tokens"]),
            ("found-in-the-tree", figures["cached_tokens"]),
        ):
            shown = page.locator(f'[data-engine="local"] [data-figure="engine-{name}"]')
            await expect(shown).to_have_text(re.compile(rf"^{value:,}\b"))
        pages = page.locator(".strip").first
        assert f"{figures['num_pages']:,} pages" in await pages.get_attribute("aria-label")


async def test_the_prefix_tree_is_a_tree_that_unfolds_by_keyboard(process, browser):
    told = await get(f"{process.admin_url}/engine/prefix-tree")
    parents = [one["parent"] for one in told["nodes"]]
    assert max(parents.count(number) for number in range(len(parents))) >= len(ASKED)
    async with opened(browser, process.admin_url, "engine") as page:
        said = page.locator('[data-figure="engine-prefix-tree"]')
        await expect(said).to_have_text(
            f"{told['num_nodes']} beginnings with {told['num_tokens']:,} tokens."
        )
        tree = page.locator(".tree")
        assert await tree.locator("li").count() == len(told["nodes"])
        rules = tree.locator("details", has=page.locator("li")).first
        assert await rules.locator("summary", has_text="doc:rules").count() >= 1
        leaf = tree.locator(".leaf").first
        await expect(leaf).to_be_visible()
        for _ in range(20):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.tagName") == "SUMMARY":
                break
        await page.keyboard.press("Enter")
        await expect(leaf).to_be_hidden()
        await page.keyboard.press("Enter")
        await expect(leaf).to_be_visible()
        await page.set_viewport_size({"width": 320, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320


async def test_what_was_purged_is_no_more_in_the_tree_that_is_asked_for_again(process, browser):
    async with opened(browser, process.admin_url, "engine") as page:
        await page.locator(".tree li").first.wait_for()
        purge = f"{process.admin_url}/cache/purge"
        done = await process.http.post(purge, json={"tags": ["doc:rules"]})
        assert done.json()["pages"] > 0
        await page.get_by_role("button", name="Look again").click()
        await expect(page.locator(".tree li", has_text="doc:rules")).to_have_count(0)
