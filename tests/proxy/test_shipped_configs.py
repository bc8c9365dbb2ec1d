"""The configs that are shipped, started as they stand: what they need comes from the environment,
and the servers behind them are upstreams on loopback. (`tests/e2e` starts the quickstart.)"""

import contextlib
from pathlib import Path

import pytest
from certificates import OPENSSL, made, server_context
from misbehaving import plain, serving
from proxyprocess import serving_process
from running import completion

CONFIGS = Path(__file__).parents[2] / "configs"
ANY_PORT = {"REJOINDER_LISTEN": "127.0.0.1:0", "REJOINDER_ADMIN_LISTEN": "127.0.0.1:0"}
TEAMS = {
    "REJOINDER_ADMIN_TOKEN": "a-token-of-the-tests",
    "SEARCH_TEAM_KEY": "sk-search",
    "SUPPORT_TEAM_KEY": "sk-support",
    "OPENAI_API_KEY": "sk-openai",
}


@pytest.fixture
async def stack():
    async with contextlib.AsyncExitStack() as entered:
        yield entered


async def good(request, writer):
    writer.write(plain(completion()))


async def broken(request, writer):
    writer.write(plain(b"{}", status="503 Busy"))


@pytest.fixture
def start(stack, tmp_path):
    async def started(name, **environ):
        folder = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        text = (CONFIGS / f"{name}.yaml").read_text()
        environ.setdefault("REJOINDER_STORE", str(folder / "store.db"))
        running = serving_process(text, folder, **{**ANY_PORT, **environ})
        return await stack.enter_async_context(running)

    return started


async def ask(process, text, *, key, model, **headers):
    messages = [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, "temperature": 0}
    sent = {"authorization": f"Bearer {key}", **headers}
    answer = await process.http.post(f"{process.url}/v1/chat/completions", json=body, headers=sent)
    return answer.headers["x-cache"] if answer.is_success else answer.status_code


async def test_the_sidecar_passes_the_client_s_key_on_and_keeps_answers_apart(stack, start):
    server = await stack.enter_async_context(serving(good))
    sidecar = await start("sidecar", UPSTREAM_URL=f"{server.url}/v1")
    asked = [await ask(sidecar, "Hi", key=key, model="m") for key in ("one", "one", "two")]
    assert asked == ["miss", "exact", "miss"]
    assert [one.header("authorization") for one in server.requests] == ["Bearer one", "Bearer two"]


async def test_the_gateway_knows_its_teams_and_asks_the_second_api(stack, start):
    first = await stack.enter_async_context(serving(broken))
    second = await stack.enter_async_context(serving(good))
    gateway = await start(
        "gateway",
        **TEAMS,
        OPENAI_URL=f"{first.url}/v1",
        AZURE_DEPLOYMENT_URL=f"{second.url}/openai/deployments/d1",
        AZURE_API_KEY="azure-key",
    )
    assert await ask(gateway, "Hi", key="sk-other", model="default") == 401
    assert await ask(gateway, "Hi", key="sk-search", model="default") == "miss"
    (answered,) = second.requests
    assert "/openai/deployments/d1/chat/completions?api-version=2025-06-01" in answered.line
    assert answered.header("api-key") == "azure-key"
    assert {one.header("authorization") for one in first.requests} == {"Bearer sk-openai"}
    # A route of one team only.
    assert await ask(gateway, "Hi", key="sk-search", model="other") == 404
    assert await ask(gateway, "Hi", key="sk-support", model="other") == 503


@pytest.mark.skipif(OPENSSL is None, reason="there is no openssl to make certificates")
async def test_a_fleet_takes_short_prompts_to_the_small_server_and_asks_for_money_last(
    stack, start, tmp_path
):
    certificates = made(tmp_path)
    tls = server_context(certificates, asks_client=True)
    fleet = [await stack.enter_async_context(serving(broken, tls=tls)) for _ in range(2)]
    small = await stack.enter_async_context(serving(good))
    hosted = await stack.enter_async_context(serving(good))
    proxy = await start(
        "fleet",
        FLEET_1_URL=f"{fleet[0].url}/v1",
        FLEET_2_URL=f"{fleet[1].url}/v1",
        FLEET_CA_FILE=certificates.file("ca.pem"),
        FLEET_CERT_FILE=certificates.file("client.pem"),
        FLEET_KEY_FILE=certificates.file("client.key"),
        SMALL_URL=f"{small.url}/v1",
        HOSTED_URL=f"{hosted.url}/v1",
        HOSTED_API_KEY="sk-hosted",
    )
    asking = {"key": "sk-any", "model": "llama-3"}
    assert [await ask(proxy, "Hi", **asking) for _ in range(2)] == ["miss", "exact"]
    assert (len(small.requests), len(hosted.requests)) == (1, 0)
    assert await ask(proxy, "Tell me of the sea. " * 200, **asking) == "miss"
    assert (len(small.requests), len(hosted.requests)) == (1, 1)
    (paid,) = hosted.requests
    assert paid.header("authorization") == "Bearer sk-hosted"
    assert b"llama-3.3-70b-instruct" in paid.body
    assert fleet[0].requests + fleet[1].requests


async def test_an_application_says_how_long_its_answers_hold_and_what_they_were_made_from(
    stack, start
):
    async def tagging(request, writer):
        told = ("cache-tag: doc:42", "cache-control: max-age=600")
        writer.write(plain(completion(), headers=told))

    server = await stack.enter_async_context(serving(tagging))
    proxy = await start("application", RAG_URL=f"{server.url}/v1")
    asking = {"key": "sk-any", "model": "rag"}
    asked = [await ask(proxy, "What is in it? request_id: 1", **asking) for _ in range(2)]
    assert asked == ["miss", "exact"]
    listed = (await proxy.http.get(f"{proxy.admin_url}/cache/entries?tag=doc:42")).json()
    (entry,) = listed["entries"]
    # Of the application, not the policy's hour; a little is taken off, differently each time.
    assert 500 < entry["expires_at"] - entry["created_at"] <= 600
    await proxy.http.post(f"{proxy.admin_url}/cache/purge", json={"tags": ["doc:42"]})
    assert await ask(proxy, "What is in it? request_id: 1", **asking) == "miss"


async def test_a_cluster_shares_answers_and_purges(stack, start, empty_redis):
    servers = [await stack.enter_async_context(serving(good)) for _ in range(2)]
    environ = {
        **TEAMS,
        "REDIS_URL": empty_redis.url,
        "VLLM_1_URL": f"{servers[0].url}/v1",
        "VLLM_2_URL": f"{servers[1].url}/v1",
    }
    one = await start("cluster", **environ)
    other = await start("cluster", **environ, REJOINDER_WORKERS="1")
    asking = {"key": "sk-search", "model": "llama", "x-doc-ids": "42"}
    assert await ask(one, "Hi", **asking) == "miss"
    assert await ask(other, "Hi", **asking) == "exact"
    assert await ask(other, "Hi", **{**asking, "key": "sk-support"}) == "miss"
    purged = await other.http.post(
        f"{other.admin_url}/cache/purge",
        json={"tags": ["doc:42"]},
        headers={"authorization": f"Bearer {TEAMS['REJOINDER_ADMIN_TOKEN']}"},
    )
    assert purged.status_code == 200
    assert await ask(one, "Hi", **asking) == "miss"
    assert sum(len(server.requests) for server in servers) == 3
