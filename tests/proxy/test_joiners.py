"""Those who wait for somebody else's answer, asked for with a credential of that one's own."""

import asyncio

import pytest
from embedding_server import Embedder, vector_of
from misbehaving import plain, serving
from running import CONFIG, completion, running

SHARED = ", share: everyone"
REFUSED = b'{"error":{"message":"refused","code":"no"}}'


async def until_joined(p, num_listeners: int = 2) -> None:
    while len(p.proxy.listeners()) < num_listeners:
        await asyncio.sleep(0.01)


async def both(p, upstream, go_on, ask):
    """The answers of two who ask at once, the first with `sk-bad`."""
    leading = asyncio.create_task(ask("sk-bad"))
    while not upstream.requests:
        await asyncio.sleep(0.01)
    joining = asyncio.create_task(ask("sk-good"))
    await until_joined(p)
    go_on.set()
    return await leading, await joining


@pytest.mark.parametrize("status", ["401 No", "402 Pay", "403 Hidden", "404 None", "429 Slow"])
@pytest.mark.parametrize("surface", ["chat", "embeddings"])
async def test_the_refusal_of_a_credential_is_for_its_owner_alone(tmp_path, status, surface):
    go_on, embedder = asyncio.Event(), Embedder()

    async def answer(request, writer):
        if request.header("authorization") == "Bearer sk-bad":
            await go_on.wait()
            writer.write(plain(REFUSED, status=status))
        elif surface == "chat":
            writer.write(plain(completion()))
        else:
            await embedder(request, writer)

    async with serving(answer) as upstream:
        text = CONFIG.format(upstream=upstream.url, options="", policy=SHARED)
        async with running(text, tmp_path) as p:

            async def ask(key):
                if surface == "chat":
                    return await p.ask(key=key)
                body = {"model": "test-1", "input": ["a", "b"]}
                headers = {"authorization": f"Bearer {key}"}
                return await p.http.post(f"{p.url}/v1/embeddings", json=body, headers=headers)

            bad, good = await both(p, upstream, go_on, ask)
    assert (bad.status_code, bad.headers["x-cache"]) == (int(status[:3]), "miss")
    assert (good.status_code, good.headers["x-cache"]) == (200, "miss")
    if surface == "embeddings":
        assert good.json()["data"][1]["embedding"] == vector_of("b")


async def test_a_refusal_of_the_proxy_s_own_key_reaches_all_at_once(tmp_path):
    go_on = asyncio.Event()

    async def answer(_request, writer):
        await go_on.wait()
        headers = ("retry-after: 7", "x-ratelimit-remaining-requests: 0")
        writer.write(plain(REFUSED, status="429 Slow", headers=headers))

    async with serving(answer) as upstream:
        options = ", credential: own, api_key: sk-ours-and-nobody-else-s"
        text = CONFIG.format(upstream=upstream.url, options=options, policy=SHARED)
        async with running(text, tmp_path) as p:
            leader, joiner = await both(p, upstream, go_on, lambda key: p.ask(key=key))
    assert [a.status_code for a in (leader, joiner)] == [429, 429]
    assert joiner.headers["x-cache"] == "coalesced"
    assert joiner.headers["retry-after"] == "7"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("surface", ["chat", "embeddings"])
async def test_headers_of_an_account_stay_with_its_owner(tmp_path, surface):
    headers = ("openai-organization: one", "x-ratelimit-remaining-requests: 7", "x-request-id: up")
    headers = (*headers, "openai-version: 2020-10-01")
    go_on, embedder = asyncio.Event(), Embedder(headers=headers)

    async def answer(request, writer):
        await go_on.wait()
        if surface == "chat":
            writer.write(plain(completion(), headers=headers))
        else:
            await embedder(request, writer)

    async with serving(answer) as upstream:
        text = CONFIG.format(upstream=upstream.url, options="", policy=SHARED)
        async with running(text, tmp_path) as p:

            async def ask(key):
                if surface == "chat":
                    return await p.ask(key=key)
                body = {"model": "test-1", "input": "a"}
                bearer = {"authorization": f"Bearer {key}"}
                return await p.http.post(f"{p.url}/v1/embeddings", json=body, headers=bearer)

            leader, joiner = await both(p, upstream, go_on, ask)
    assert leader.headers["openai-organization"] == "one"
    assert leader.headers["x-upstream-request-id"] == "up"
    assert joiner.headers["x-cache"] == "coalesced"
    assert joiner.headers["openai-version"] == "2020-10-01"
    personal = {"openai-organization", "x-ratelimit-remaining-requests", "x-upstream-request-id"}
    assert personal.isdisjoint(joiner.headers)
