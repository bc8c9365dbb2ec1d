"""A reload that changes the engine: the new one is there before the old one goes."""

import asyncio

import httpx
import pytest
from living import living
from proxyprocess import Process, serving_process
from tinymodel import write_tiny

DEADLINE_S = 400
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: {workers}
store: {{path: "{folder}/store.db"}}
upstreams:
  local: {{engine: {{model: "{model}", max_context: {context}, threads: 1}}}}
routes:
  - {{match: {{model: "*"}}, to: local, cache: none}}
"""


def engines_of(process: Process) -> set[int]:
    return {one.pid for one in living(process.process.pid, "engine.process.worker")}


async def ask(process: Process) -> httpx.Response:
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        message = {"role": "user", "content": "Hello?"}
        body = {"model": "tiny", "messages": [message], "max_tokens": 3}
        return await http.post(f"{process.url}/v1/chat/completions", json=body)


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_engine_is_changed_without_a_gap_and_only_for_one_that_works(tmp_path, workers):
    model = str(write_tiny(tmp_path / "tiny.gguf").path)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))

    def text(model: str, context: int) -> str:
        return CONFIG.format(folder=tmp_path, workers=workers, model=model, context=context)

    async with serving_process(text(model, 512), tmp_path) as process:
        before = engines_of(process)
        assert len(before) == 1, "one for all workers"
        assert (await ask(process)).status_code == 200

        process.path.write_text(text(str(broken), 512))
        refused = await process.http.post(f"{process.admin_url}/reload", timeout=DEADLINE_S)
        assert refused.status_code == 400
        assert refused.json()["problems"][0].startswith("upstreams.local")
        assert engines_of(process) == before
        assert (await ask(process)).status_code == 200

        process.path.write_text(text(model, 256))
        reloading = asyncio.create_task(
            process.http.post(f"{process.admin_url}/reload", timeout=DEADLINE_S)
        )
        statuses = []
        while not reloading.done():
            statuses.append((await ask(process)).status_code)
        assert (await reloading).status_code == 200
        assert set(statuses) == {200}
        assert (await ask(process)).status_code == 200
        while engines_of(process) & before or len(engines_of(process)) != 1:
            await asyncio.sleep(0.05)
