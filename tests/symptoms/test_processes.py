"""The rows of the table of symptoms whose fault befalls a whole process."""

import asyncio
import resource
import signal

import psutil
import pytest
import pytest_asyncio
from instruments import showing
from living import living
from misbehaving import plain, serving
from proxyprocess import serving_process
from running import completion
from table import row
from tinymodel import write_tiny

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENGINE = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
store: {{path: "{folder}/store.db"}}
upstreams:
  local:
    engine:
      model: "{folder}/tiny.gguf"
      threads: 1
      max_context: 160
      kv_cache: {{memory: 50KiB, swap: 0, prefix: false}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{to: local, cache: standard}}
shutdown: {{grace: 0s, deadline: 10s}}
"""
DISK = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
store: {{path: "{folder}/store.db"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{to: main, cache: standard}}
shutdown: {{grace: 0s, deadline: 10s}}
"""
MODEL = "tiny"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engine")
    write_tiny(folder / "tiny.gguf")
    async with serving_process(ENGINE.format(folder=folder), folder) as process:
        yield process


def say(text, num_tokens):
    """No end of text before so many tokens."""
    ends = {"256": -100, "258": -100}
    message = {"role": "user", "content": text}
    return {"model": MODEL, "messages": [message], "max_tokens": num_tokens, "logit_bias": ends}


async def ask(process, body):
    answer = await process.http.post(f"{process.url}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def test_an_engine_without_room_is_seen_by_its_preemptions(engine, browser):
    async with showing(row("slow", "the engine"), engine, browser) as fault:
        bodies = [say(f"Count from {number}.", 100) for number in range(3)]
        answers = await asyncio.gather(*(ask(engine, body) for body in bodies))
        fault.asked = {"request_id": answers[0].headers["x-request-id"]}


async def test_an_engine_that_was_killed_is_seen_by_its_restarts(engine, browser):
    body = say("What is a harbour for?", 2)
    await ask(engine, body)
    async with showing(row("engine restarts", "its process"), engine, browser) as fault:
        (worker,) = living(engine.process.pid, "engine.process.worker")
        worker.send_signal(signal.SIGKILL)
        await engine.hears("engine worker died")
        stored = await ask(engine, body)
        assert stored.headers["x-cache"] == "exact"
        fault.asked = {"request_id": stored.headers["x-request-id"]}
        await ask(engine, say("Are you back?", 2))


async def test_a_full_disk_is_seen_as_faults_of_the_store(tmp_path, browser):
    async def answer(request, writer):
        writer.write(plain(completion("x" * 300_000)))

    async with (
        serving(answer) as upstream,
        serving_process(DISK.format(folder=tmp_path, upstream=upstream.url), tmp_path) as process,
    ):
        server = psutil.Process(process.process.pid)
        await process.ask("Is it stored?")
        async with showing(row("disk full", "the store"), process, browser) as fault:
            # No file of that process may grow any more, which SQLite takes as a full disk.
            server.rlimit(psutil.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            answers = [await process.ask("Is there no room?") for _ in range(2)]
            assert [one.headers["x-cache"] for one in answers] == ["miss", "miss"]
            fault.asked = {"request_id": answers[1].headers["x-request-id"]}
        server.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        again = [await process.ask("Is there room again?") for _ in range(2)]
        assert [one.headers["x-cache"] for one in again] == ["miss", "exact"]
