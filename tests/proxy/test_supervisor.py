"""Several workers behind the same sockets: real processes, one store."""

import asyncio
import os
import re
import signal
from collections import Counter

import httpx
import psutil
from living import living
from misbehaving import plain, serving
from proxyprocess import Process, serving_process
from running import BEGIN, END, chunk, completion, good, wants_stream

WORKERS = 2

CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
workers: {workers}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
store: {{path: "{folder}/store.db"}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard}}
shutdown: {{grace: 0s, deadline: 60s}}
"""
LOG = """
tenants: {{keys: {{sk-one: acme}}}}
record: {{path: "{path}", bodies: true}}
"""


def config_of(upstream: str, folder, *, workers: int = WORKERS) -> str:
    return CONFIG.format(upstream=upstream, folder=folder, workers=workers)


def workers_of(process: Process) -> list[psutil.Process]:
    return living(process.process.pid, "proxy.processes.worker")


async def ask_anew(process: Process, text: str) -> httpx.Response:
    """On a connection of its own, which any worker may take."""
    async with httpx.AsyncClient(timeout=60) as http:
        body = {"model": "test-1", "messages": [{"role": "user", "content": text}]}
        return await http.post(f"{process.url}/v1/chat/completions", json=body)


async def ask_every_worker(process: Process, text: str) -> Counter[str]:
    """Ask until all workers have certainly answered; how the answers were made."""
    answers = Counter()
    for _ in range(6):
        at_once = await asyncio.gather(*(ask_anew(process, text) for _ in range(16)))
        answers.update(answer.headers["x-cache"] for answer in at_once)
    return answers


async def metrics_of(process: Process) -> str:
    return (await process.http.get(f"{process.admin_url}/metrics")).text


def requests_in(metrics: str) -> int:
    found = re.findall(r"^rejoinder_requests_total\{.*\} (\S+)$", metrics, re.MULTILINE)
    return sum(int(float(value)) for value in found)


async def restart_one(process: Process) -> None:
    """Kill a worker, and see it gone."""
    worker = workers_of(process)[0]
    worker.kill()
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.01)


async def stats_of(process: Process) -> dict:
    async with httpx.AsyncClient(timeout=60) as http:
        return (await http.get(f"{process.admin_url}/cache/stats")).json()


async def ask_on_and_on(process: Process) -> None:
    async with httpx.AsyncClient(timeout=60, headers={"authorization": "Bearer sk-one"}) as http:
        body = {"model": "test-1", "messages": [{"role": "user", "content": "Zebra"}]}
        while True:
            await http.post(f"{process.url}/v1/chat/completions", json=body)


async def erase(process: Process) -> dict:
    async with httpx.AsyncClient(timeout=60) as http:
        answer = await http.post(f"{process.admin_url}/cache/erase", json={"tenant": "acme"})
        assert answer.status_code == 200, answer.text
        return answer.json()


async def report(process: Process) -> httpx.Response:
    """On an answer that no worker has given."""
    async with httpx.AsyncClient(timeout=60) as http:
        verdict = {"request_id": "nobody", "verdict": "wrong"}
        return await http.post(f"{process.admin_url}/cache/feedback", json=verdict)


async def test_counts_of_all_workers_add_up_whichever_is_asked(tmp_path):
    async with (
        serving(good) as upstream,
        serving_process(config_of(upstream.url, tmp_path), tmp_path) as process,
    ):
        assert len(workers_of(process)) == WORKERS
        answers = await ask_every_worker(process, "How many?")
        assert answers["exact"] + answers["miss"] + answers["coalesced"] == 96
        for _ in range(8):
            async with httpx.AsyncClient() as http:
                stats = (await http.get(f"{process.admin_url}/cache/stats")).json()
            assert stats["workers"] == WORKERS
            assert sum(stats["requests"].values()) == 96
        metrics = await metrics_of(process)
        assert requests_in(metrics) == 96
        in_flight = re.findall(
            r'^rejoinder_upstream_in_flight\{.*worker="(\d)".*\}', metrics, re.MULTILINE
        )
        assert sorted(in_flight) == ["0", "1"], "gauges of each worker apart"


async def test_what_is_in_flight_is_counted_over_all_workers(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer) -> None:
        await go_on.wait()
        writer.write(plain(completion()))

    async with (
        serving(slow) as upstream,
        serving_process(config_of(upstream.url, tmp_path), tmp_path) as process,
    ):
        asking = [asyncio.create_task(ask_anew(process, f"number {i}")) for i in range(12)]
        while len(upstream.requests) < 12:
            await asyncio.sleep(0.02)
        stats = (await process.http.get(f"{process.admin_url}/cache/stats")).json()
        assert (stats["in_flight"], stats["waiting"]) == (12, 12)
        go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*asking)} == {200}


async def test_a_purge_is_in_force_in_every_worker_when_it_returns(tmp_path):
    numbers = iter(range(10**6))

    async def numbered(request, writer) -> None:
        writer.write(plain(completion(f"answer {next(numbers)}")))

    def said(answer: httpx.Response) -> int:
        text = answer.json()["choices"][0]["message"]["content"]
        return int(text.removeprefix("answer "))

    async with (
        serving(numbered) as upstream,
        serving_process(config_of(upstream.url, tmp_path), tmp_path) as process,
    ):
        for _ in range(5):
            await ask_every_worker(process, "hot?")  # now in the memory tier of each
            newest = next(numbers)
            purged = await process.http.post(f"{process.admin_url}/cache/purge", json={"all": True})
            assert purged.json()["matched"] == 1
            answers = await asyncio.gather(*(ask_anew(process, "hot?") for _ in range(24)))
            assert min(map(said, answers)) > newest, "an answer from before the purge"


async def test_a_worker_that_dies_is_replaced_and_its_counts_stay(tmp_path):
    async with (
        serving(good) as upstream,
        serving_process(config_of(upstream.url, tmp_path), tmp_path) as process,
    ):
        asked = await ask_every_worker(process, "before?")
        shown = requests_in(await metrics_of(process))
        assert shown == asked.total(), "what was shown is never lost"
        before = {worker.pid for worker in workers_of(process)}
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        while len({worker.pid for worker in workers_of(process)} - before) < WORKERS:
            await asyncio.sleep(0.05)
        answers = await ask_every_worker(process, "before?")
        assert set(answers) == {"exact"}, "the store outlives its workers"
        assert requests_in(await metrics_of(process)) == shown + answers.total()


async def test_a_reload_is_in_force_in_every_worker_and_in_their_successors(tmp_path):
    async def echo_model(request, writer) -> None:
        model = request.body.split(b'"model":"')[1].split(b'"')[0].decode()
        writer.write(plain(completion(f"model {model}")))

    async with (
        serving(echo_model) as upstream,
        serving_process(config_of(upstream.url, tmp_path), tmp_path) as process,
    ):
        await ask_anew(process, "first")
        text = config_of(upstream.url, tmp_path)
        process.path.write_text(text.replace("cache: standard", "model: {rewrite: test-new}"))
        reloaded = await process.http.post(f"{process.admin_url}/reload")
        assert (reloaded.status_code, reloaded.json()["ok"]) == (200, True)
        answers = await asyncio.gather(*(ask_anew(process, f"{i}") for i in range(24)))
        assert all("model test-new" in answer.text for answer in answers)

        process.path.write_text(text.replace("routes", "rotes"))
        refused = await process.http.post(f"{process.admin_url}/reload")
        assert refused.status_code == 400
        assert "unknown key; did you mean `routes`?" in refused.json()["error"]["message"]

        before = {worker.pid for worker in workers_of(process)}
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        while len({worker.pid for worker in workers_of(process)} - before) < WORKERS:
            await asyncio.sleep(0.05)
        answers = await asyncio.gather(*(ask_anew(process, f"{i}") for i in range(24)))
        assert all("model test-new" in answer.text for answer in answers)


async def test_a_reload_while_a_worker_is_stuck_names_it_and_changes_nothing(tmp_path):
    async with (
        serving(good) as upstream,
        serving_process(config_of(upstream.url, tmp_path, workers=2), tmp_path) as process,
    ):
        stuck = workers_of(process)[0]
        stuck.suspend()
        async with httpx.AsyncClient(timeout=60) as client:  # of connections to the other worker
            refused = await client.post(f"{process.admin_url}/reload")
        stuck.resume()
        answered = refused.json()
        assert (refused.status_code, answered["error"]["code"]) == (503, "worker_stuck")
        assert re.fullmatch(
            rf"worker \d \(process {stuck.pid}\) does not answer within 5 s: "
            "the config before stays in force",
            answered["error"]["message"],
        )
        process.process.send_signal(signal.SIGHUP)
        await process.hears("Config reloaded, by SIGHUP")


async def test_sigterm_lets_streams_of_all_workers_end(tmp_path):
    go_on = asyncio.Event()

    async def slow(request, writer) -> None:
        assert wants_stream(request)
        writer.write(BEGIN + chunk({"content": "half "}))
        await writer.drain()
        await go_on.wait()
        writer.write(chunk({"content": "whole"}) + END)

    async def stream(number: int) -> str:
        async with httpx.AsyncClient(timeout=60) as http:
            message = {"role": "user", "content": f"{number}"}
            body = {"model": "test-1", "messages": [message], "stream": True}
            answer = await http.post(f"{process.url}/v1/chat/completions", json=body)
            return answer.text

    async with (
        serving(slow) as upstream,
        serving_process(config_of(upstream.url, tmp_path), tmp_path) as process,
    ):
        streams = [asyncio.create_task(stream(number)) for number in range(12)]
        while len(upstream.requests) < 12:
            await asyncio.sleep(0.02)
        pids = [worker.pid for worker in workers_of(process)]
        process.process.send_signal(signal.SIGTERM)
        go_on.set()
        texts = await asyncio.gather(*streams)
        assert all(text.endswith("data: [DONE]\n\n") for text in texts)
        assert await process.ends() == 0
        assert not any(psutil.pid_exists(pid) for pid in pids)


async def test_workers_do_not_outlive_their_parent(tmp_path):
    async with (
        serving(good) as upstream,
        serving_process(config_of(upstream.url, tmp_path), tmp_path) as process,
    ):
        workers = workers_of(process)
        process.process.kill()
        await process.ends()
        while any(worker.is_running() for worker in workers):
            await asyncio.sleep(0.05)


async def test_a_worker_that_cannot_be_started_is_tried_until_it_can(tmp_path):
    """First the parent has no descriptor left, then the worker cannot open its counters."""
    async with (
        serving(good) as upstream,
        serving_process(
            config_of(upstream.url, tmp_path, workers=2), tmp_path, TMPDIR=str(tmp_path)
        ) as process,
    ):
        parent = psutil.Process(process.process.pid)
        limits = parent.rlimit(psutil.RLIMIT_NOFILE)
        parent.rlimit(psutil.RLIMIT_NOFILE, (3, limits[1]))
        await restart_one(process)
        await process.hears(r"worker \d cannot begin: .*Too many open files")
        (counters,) = tmp_path.glob("rejoinder-*")
        counters.rename(tmp_path / "elsewhere")
        parent.rlimit(psutil.RLIMIT_NOFILE, limits)
        await process.hears(r"worker \d cannot begin: .*FileNotFoundError")
        assert (await ask_anew(process, "still?")).status_code == 200, "the other one goes on"
        (tmp_path / "elsewhere").rename(counters)
        while (await stats_of(process))["workers"] < 2:
            await asyncio.sleep(0.05)
        assert set(await ask_every_worker(process, "still?")) == {"exact"}


async def test_an_erasure_that_a_worker_takes_no_part_in_is_to_be_asked_again(tmp_path):
    log = tmp_path / "requests.jsonl"
    async with serving(good) as upstream:
        text = config_of(upstream.url, tmp_path, workers=2) + LOG.format(path=log)
        async with serving_process(text, tmp_path) as process:
            asking = [asyncio.create_task(ask_on_and_on(process)) for _ in range(8)]
            while not log.exists():
                await asyncio.sleep(0.01)
            stuck = workers_of(process)[0]
            stuck.suspend()  # with requests in its memory, and lines that are not written yet
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            try:
                erased = await erase(process)
                assert (erased["missing"], erased["scrubbed"]) == (1, False)
                told = await report(process)
                assert (told.status_code, told.json()["error"]["type"]) == (503, "server_error")
            finally:
                stuck.resume()
            while (await erase(process))["missing"]:
                pass
            assert (await report(process)).status_code == 404
            left = b"".join(one.read_bytes() for one in tmp_path.glob("requests.jsonl*"))
            assert b"Zebra" not in left
            metrics = await metrics_of(process)
            assert re.search(r'^rejoinder_purges_total\{kind="hard"\} [2-9]', metrics, re.MULTILINE)
