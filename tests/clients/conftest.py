"""One upstream and one proxy for all clients; each test asks something of its own."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from proxyprocess import ProxyProcess
from upstream import Upstream

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
aliases: {{acme/house-model: org/chat}}
policies:
  standard: {{ttl: 1h}}
retry_budget: 1
keep_alive: 300ms
routes:
  - {{match: {{model: "patient/*"}}, to: main, cache: standard, retries: 2}}
  - {{match: {{model: ["org/chat", "org/tools"]}}, to: main, cache: standard, retries: 0}}
  - {{match: {{model: "*"}}, to: main, cache: standard, retries: 0}}
  - {{to: main}}
shutdown: {{grace: 0s, deadline: 5s}}
"""


def pytest_configure() -> None:
    # Each would call home or wait for somebody who does not answer here.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LANGSMITH_TRACING"] = "false"
    os.environ["OPENAI_API_KEY"] = "sk-of-the-environment"
    # Each client would read all certificates of the machine, for servers that have none.
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).parents[1] / "nobody.pem")


class Seen:
    """The response headers that libraries hide, out of a hook in their HTTP client."""

    def __init__(self) -> None:
        self.headers: list[Mapping[str, str]] = []

    def sync_client(self) -> DefaultHttpxClient:
        return DefaultHttpxClient(event_hooks={"response": [self._add]}, timeout=60)

    def async_client(self) -> DefaultAsyncHttpxClient:
        return DefaultAsyncHttpxClient(event_hooks={"response": [self._add_async]}, timeout=60)

    def _add(self, response) -> None:
        self.headers.append(response.headers)

    async def _add_async(self, response) -> None:
        self.headers.append(response.headers)

    @property
    def words(self) -> list[str | None]:
        """`X-Cache` of each answer."""
        return [headers.get("x-cache") for headers in self.headers]


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


@pytest.fixture(scope="session")
def proxy(upstream: Upstream) -> Iterator[ProxyProcess]:
    process = ProxyProcess(CONFIG.format(upstream=upstream.url))
    yield process
    assert process.stop() == 0
    faults = [line for line in process.said if "Traceback" in line or "failed" in line]
    assert not faults, "".join(process.said)


@pytest.fixture
def question(request: pytest.FixtureRequest) -> str:
    """A text that no other test asks."""
    return f"What is a cache? ({request.node.nodeid})"


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def client(proxy: ProxyProcess, seen: Seen) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{proxy.url}/v1",
        api_key="sk-test",
        http_client=seen.sync_client(),
        max_retries=0,
    ) as openai:
        yield openai


@pytest.fixture
async def async_client(proxy: ProxyProcess, seen: Seen):
    async with AsyncOpenAI(
        base_url=f"{proxy.url}/v1",
        api_key="sk-test",
        http_client=seen.async_client(),
        max_retries=0,
    ) as openai:
        yield openai
