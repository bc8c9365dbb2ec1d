"""The main job, end to end: the `openai` package, the quickstart's config, the bundled models."""

import asyncio
import itertools
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import openai
import psutil
import pytest
from openai import OpenAI
from quickstart import ROOT, Quickstart, config

MODEL = "smollm2-135m-instruct"
PAIRS = json.loads((ROOT / "tests/index/paraphrases.json").read_text())

SPARE = """
  spare: {{base_url: "{url}/v1"}}
  nobody: {{base_url: "http://127.0.0.1:9/v1"}}
"""
ROUTES = """
  - {match: {model: "other-*"}, to: spare, cache: standard}
  - {match: {model: "nobody"}, to: nobody, cache: standard, retries: 0}
"""


class Other(BaseHTTPRequestHandler):
    """Another OpenAI-compatible server."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {
            "id": "chatcmpl-other",
            "object": "chat.completion",
            "created": 1700000000,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "from elsewhere"},
                    "finish_reason": "stop",
                }
            ],
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments):
        pass


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store") / "rejoinder.db"


@pytest.fixture(scope="module")
def other():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def server(store, other):
    text = config(store, extra_upstreams=SPARE.format(url=other), extra_routes=ROUTES)
    running = Quickstart(text)
    yield running
    running.stop()


@pytest.fixture
def client(server):
    with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=120) as client:
        yield client


def ask(client, text, *, model=MODEL, max_tokens=8, **more):
    """One short greedy answer: its text, and the headers."""
    messages = [{"role": "user", "content": text}]
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=messages, max_tokens=max_tokens, temperature=0, **more
    )
    answer = raw.parse()
    if more.get("stream"):
        pieces = [c.choices[0].delta.content or "" for c in answer if c.choices]
        return "".join(pieces), raw.headers
    return answer.choices[0].message.content, raw.headers


def test_the_start_says_what_loads_and_ends_with_an_example_to_paste(server):
    said = "".join(server.said)
    assert "loading" in said
    assert f'base_url="{server.url}/v1"' in said
    assert MODEL in said


def test_the_example_that_the_start_prints_runs(server):
    lines = "".join(server.said).split("Try it:\n\n", 1)[1].splitlines()
    example = "\n".join(line[2:] for line in lines if line.startswith("  "))
    assert len(example.splitlines()) == 3
    done = subprocess.run(
        [sys.executable, "-c", example],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("stream", [False, True])
def test_a_question_is_a_miss_then_exact_then_semantic(client, stream):
    form = "streamed" if stream else "plain"
    question = {"plain": "Why is grass green?", "streamed": "Why is the sea salty?"}[form]
    paraphrase = {"plain": "why is the grass green", "streamed": "Why is sea water salty?"}[form]
    text, headers = ask(client, question, stream=stream)
    assert text
    assert headers["x-cache"] == "miss"
    assert headers["cache-status"].startswith("rejoinder; fwd=uri-miss")
    assert "age" not in headers
    again, headers = ask(client, question, stream=stream)
    assert again == text
    assert headers["x-cache"] == "exact"
    assert re.match(
        r'rejoinder; hit; ttl=\d+; key="[0-9a-f]{64}"; detail=exact', headers["cache-status"]
    )
    assert int(headers["age"]) >= 0
    meant, headers = ask(client, paraphrase, stream=stream)
    assert meant == text
    assert headers["x-cache"] == "semantic"
    assert float(headers["x-cache-similarity"]) > 0.8
    other_form, headers = ask(client, question, stream=not stream)
    assert other_form == text
    assert headers["x-cache"] == "exact"


@pytest.mark.parametrize("how", ["header", "body"])
@pytest.mark.parametrize("purge", ["cli", "http"])
def test_a_tagged_answer_is_a_hit_until_the_tag_is_purged(server, client, how, purge):
    tag = f"doc:{how}-{purge}"
    question = f"Name one animal for the {how} and the {purge} of a tag."
    more = (
        {"extra_headers": {"x-cache-tags": tag}}
        if how == "header"
        else {"extra_body": {"cache": {"tags": [tag]}}}
    )
    seen = [ask(client, question, **more)[1]["x-cache"] for _ in range(2)]
    if purge == "cli":
        done = server.run("purge", "--tag", tag)
        assert done.returncode == 0, done.stderr
        assert "1 answer" in done.stdout
    else:
        done = httpx.post(f"{server.admin_url}/cache/purge", json={"tags": [tag]})
        assert done.json()["matched"] == 1
    seen += [ask(client, question, **more)[1]["x-cache"] for _ in range(2)]
    assert seen == ["miss", "exact", "miss", "exact"]


def test_twenty_paraphrases_are_served_and_twenty_near_misses_are_refused(client):
    def outcomes(pairs):
        for pair in pairs:
            ask(client, pair["stored"], max_tokens=1)
        return [ask(client, pair["asked"], max_tokens=1)[1]["x-cache"] for pair in pairs]

    assert len(PAIRS["same"]) == len(PAIRS["different"]) == 20
    assert outcomes(PAIRS["different"]) == ["miss"] * 20
    assert outcomes(PAIRS["same"]) == ["semantic"] * 20


def test_other_models_go_to_the_upstream_of_their_route(client):
    text, headers = ask(client, "Who are you?", model="other-model")
    assert (text, headers["x-cache"]) == ("from elsewhere", "miss")
    text, headers = ask(client, "Who are you?", model="other-model")
    assert (text, headers["x-cache"]) == ("from elsewhere", "exact")


def test_the_models_are_listed(client):
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
def test_bad_json_is_a_400_in_openai_s_shape(server, path):
    answer = httpx.post(f"{server.url}{path}", content=b'{"model": ')
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "invalid_json"
    assert answer.headers["x-request-id"]


def test_an_unknown_model_is_a_404(client):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, "hi", model="gpt-unknown")
    assert caught.value.code == "model_not_found"


def test_an_upstream_that_is_not_there_is_a_503_that_is_not_tried_again(client):
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, "hi", model="nobody")
    assert caught.value.status_code == 503
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_a_400(client, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, "word " * 9000, stream=stream)
    assert caught.value.code == "context_length_exceeded"


def test_requests_of_one_moment_run_in_one_batch(server):
    async def run():
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=120
        ) as client:
            first_tokens = []

            async def one(number):
                stream = await client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": f"Tell a story about {number} ships."}],
                    max_tokens=24,
                    temperature=0,
                    stream=True,
                )
                async for chunk in stream:
                    if chunk.choices and chunk.choices[0].delta.content:
                        first_tokens.append(number)

            await asyncio.gather(*[one(number) for number in range(4)])
            return first_tokens

    order = asyncio.run(run())
    # One after the other, each number would stand in one block: four changes at the most.
    changes = sum(a != b for a, b in itertools.pairwise(order))
    assert changes > 8


def test_answers_outlive_a_restart_and_the_end_leaves_no_process_behind(server, store, client):
    text, _ = ask(client, "What is a harbour for?")
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert children
    assert server.stop() == 0
    assert psutil.wait_procs(children, timeout=30)[1] == []
    again = Quickstart(config(store))
    with OpenAI(base_url=f"{again.url}/v1", api_key="any", max_retries=0) as later:
        kept, headers = ask(later, "What is a harbour for?")
        meant, meant_headers = ask(later, "What's a harbour for?")
    assert again.stop() == 0
    assert (kept, headers["x-cache"]) == (text, "exact")
    assert (meant, meant_headers["x-cache"]) == (text, "semantic")
