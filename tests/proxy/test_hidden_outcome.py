"""A policy may keep to itself what became of a request."""

import pytest
from misbehaving import plain, serving
from running import CONFIG, completion, good, running, wants_stream

TELLING = {"x-cache", "x-cache-similarity", "cache-status", "age"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_policy_can_hide_what_became_of_a_request(tmp_path, stream):
    policy = ", share: everyone, hide_outcome: true"
    async with serving(good) as upstream:
        config = CONFIG.format(upstream=upstream.url, options="", policy=policy)
        async with running(config, tmp_path) as p:
            answers = [await p.ask(key=key, stream=stream) for key in ("sk-one", "sk-two")]
            metrics = (await p.http.get(f"{p.admin_url}/metrics")).text
            elsewhere = await p.ask(model="uncached")
        assert len(upstream.requests) == 2
    for answer in answers:
        assert answer.status_code == 200
        assert not TELLING & answer.headers.keys()
    assert 'outcome="exact"' in metrics
    assert elsewhere.headers["x-cache"] == "bypass"


async def test_the_upstreams_own_cache_is_not_shown_in_its_place(tmp_path):
    async def cached(request, writer):
        assert not wants_stream(request)
        told = ("x-cache: HIT", "age: 7", "x-cache-similarity: 1")
        writer.write(plain(completion(), headers=told))

    async with serving(cached) as upstream:
        config = CONFIG.format(upstream=upstream.url, options="", policy=", hide_outcome: true")
        async with running(config, tmp_path) as p:
            answers = [await p.ask(), await p.ask()]
    for answer in answers:
        assert answer.status_code == 200
        assert not TELLING & answer.headers.keys()
