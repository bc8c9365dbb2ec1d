"""Clients from npm, each scenario in a Node process of its own (`node/*.mjs`)."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from openai import OpenAI
from upstream import error

NODE = Path(__file__).parent / "node"
DEADLINE_S = 120


@pytest.fixture
def node(proxy, question):
    """Run a scenario; `X-Cache` of its answers."""

    def run(script: str, scenario: str) -> list[str | None]:
        done = subprocess.run(
            ["node", str(NODE / script), scenario],
            env={**os.environ, "PROXY_URL": proxy.url, "QUESTION": question},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])["words"]

    return run


@pytest.mark.parametrize(
    ("script", "scenario", "words"),
    [
        ("openai.mjs", "plain", ["miss", "exact"]),
        ("openai.mjs", "streamed", ["miss", "exact", "exact"]),
        ("openai.mjs", "tools", ["miss", "exact"]),
        ("openai.mjs", "toolRunner", ["miss", "miss", "exact", "exact"]),
        ("openai.mjs", "parsed", ["miss", "exact"]),
        ("openai.mjs", "responses", ["miss", "exact", "exact", "exact"]),
        ("openai.mjs", "embeddings", ["miss", "exact", "exact"]),
        ("openai.mjs", "thinking", ["miss", "exact"]),
        ("ai.mjs", "thinking", ["miss", "exact"]),
        ("openai.mjs", "surfaces", [None] * 7),
        ("ai.mjs", "plain", ["miss", "exact"]),
        ("ai.mjs", "streamed", ["miss", "exact", "exact"]),
        ("ai.mjs", "reasoning", ["miss", "exact"]),
        ("ai.mjs", "tools", ["miss", "miss", "exact", "exact", "exact", "exact"]),
        ("ai.mjs", "objects", ["miss", "exact"]),
        ("ai.mjs", "embeddings", ["miss", "exact"]),
    ],
)
def test_answers_replay_as_they_were(node, script, scenario, words):
    assert node(script, scenario) == words


@pytest.mark.parametrize("script", ["openai.mjs", "ai.mjs"])
def test_errors_are_the_client_s_own(node, upstream, question, script):
    upstream.fail(question, error(429, "Slow down.", code="rate_limit_exceeded"))
    assert node(script, "errors")[0] == "miss"


def test_retries_of_the_sdk_end_in_an_answer(node, upstream, question):
    limited = error(429, "Slow down.", retry_after="0.01")
    upstream.fail(question, limited, error(500, "Oops.", retry_after_ms="1"))
    assert node("openai.mjs", "retried") == ["miss", "miss", "miss"]
    assert len(upstream.asks(question)) == 3


@pytest.mark.parametrize("script", ["openai.mjs", "ai.mjs"])
def test_a_broken_connection_is_told_and_never_stored(node, upstream, question, script):
    words = node(script, "cut")
    assert set(words) == {"miss"}
    assert node(script, "cut") == words


def test_an_error_in_mid_stream_is_raised(node, upstream, question):
    for _ in range(2):
        node("openai.mjs", "dying")
    assert len(upstream.asks(question)) == 2


@pytest.mark.parametrize("script", ["openai.mjs", "ai.mjs"])
def test_leaving_a_stream_closes_the_upstream_s_connection(node, upstream, question, script):
    node(script, "left")
    (asked,) = upstream.asks(question)
    assert asked.client_left.wait(20)


def test_python_and_node_share_an_entry(node, proxy, upstream, question):
    with OpenAI(base_url=proxy.url, api_key="sk-test", max_retries=0) as client:
        client.chat.completions.create(
            model="org/chat", messages=[{"role": "user", "content": question}]
        )
    assert node("openai.mjs", "plain") == ["exact", "exact"]
    assert len(upstream.asks(question)) == 1
