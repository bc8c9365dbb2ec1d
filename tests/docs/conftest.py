"""A proxy before an upstream, for the documents' blocks to talk to."""

import sys
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parents[1] / "proxy"))

from misbehaving import serving
from proxyprocess import serving_process
from running import good

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {{path: "{folder}/store.db"}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{to: main, cache: standard}}
shutdown: {{grace: 0s, deadline: 10s}}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy")
    async with serving(good) as upstream:
        text = CONFIG.format(upstream=upstream.url, folder=folder)
        async with serving_process(text, folder) as process:
            yield process
