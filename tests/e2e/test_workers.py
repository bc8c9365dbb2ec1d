"""Two workers and the bundled engine, as a user starts them: one engine process for both."""

import asyncio

import httpx
import psutil
import pytest
from living import living
from quickstart import Quickstart, config

DEADLINE_S = 400


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    text = config(tmp_path_factory.mktemp("workers") / "store.db")
    text = "workers: 2\nshutdown: {grace: 0s, deadline: 30s}\n" + text
    server = Quickstart(text)
    yield server
    server.stop()


def processes_of(server: Quickstart, module: str) -> list[psutil.Process]:
    return living(server.process.pid, module)


async def ask(server: Quickstart, text: str) -> httpx.Response:
    body = {
        "model": "smollm2-135m-instruct",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 8,
    }
    async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
        return await http.post(f"{server.url}/v1/chat/completions", json=body)


async def test_one_engine_answers_both_workers_and_the_answers_are_shared(workers):
    assert len(processes_of(workers, "proxy.processes.worker")) == 2
    assert len(processes_of(workers, "engine.process.worker")) == 1
    questions = [f"What is {number} and {number}?" for number in range(6)]
    answers = await asyncio.gather(*(ask(workers, question) for question in questions))
    assert {answer.status_code for answer in answers} == {200}
    again = await asyncio.gather(*(ask(workers, question) for question in questions * 4))
    assert {answer.headers["x-cache"] for answer in again} == {"exact"}
    texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    repeated = [answer.json()["choices"][0]["message"]["content"] for answer in again]
    assert repeated == texts * 4


async def test_the_start_is_told_once(workers):
    told = [line for line in workers.said if line == "embedder: ready\n"]
    assert len(told) == 1
