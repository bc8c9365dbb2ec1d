"""The codex CLI's requests, recorded by hand (`codex_request.json`), sent over a plain socket and
read as strictly as the CLI reads: each event by its `type`, an end only after the last one."""

import copy
import json
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from responses import COMMAND
from upstream import error

RECORDED = json.loads((Path(__file__).parent / "codex_request.json").read_text())
DEADLINE_S = 60


class Codex:
    """The CLI; each call is a request on a connection of its own."""

    def __init__(self, url: str, question: str) -> None:
        self._url = url
        self._question = question
        self._connections: list[HTTPConnection] = []

    def __call__(self, *, base: str = "/v1", headers: dict | None = None, **body) -> HTTPResponse:
        """Send the request with changes; the response, its body unread."""
        asked = copy.deepcopy(RECORDED["body"])
        asked["input"][-1]["content"][0]["text"] = self._question
        asked |= body
        connection = HTTPConnection(urlsplit(self._url).netloc, timeout=DEADLINE_S)
        self._connections.append(connection)
        connection.request(
            "POST",
            f"{base}/responses",
            json.dumps(asked, separators=(",", ":"), ensure_ascii=False).encode(),
            {**RECORDED["headers"], **(headers or {})},
        )
        return connection.getresponse()

    def hang_up(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def codex(proxy, question):
    client = Codex(proxy.url, question)
    yield client
    client.hang_up()


def events(response: HTTPResponse) -> list[dict]:
    """All events. Fails where the CLI would: a name that is not the type, an early end."""
    assert response.status == 200
    assert response.getheader("content-type").startswith("text/event-stream")
    found = []
    for block in response.read().decode().split("\n\n")[:-1]:
        if block.startswith(":"):
            continue
        name, _, data = block.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        found.append(event)
    assert found[-1]["type"] == "response.completed"
    return found


def test_a_turn_and_its_repetition_are_one_answer(codex, upstream, question):
    first = codex()
    live = events(first)
    again = codex()
    replayed = events(again)
    assert first.getheader("x-cache") == "miss"
    assert again.getheader("x-cache") == "exact"
    assert live == replayed
    done = [event["item"] for event in live if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "function_call", "function_call"]
    assert done[0]["encrypted_content"].startswith("gAAAAA")
    assert [json.loads(item["arguments"]) for item in done[1:]] == [COMMAND, COMMAND]
    assert live[-1]["response"]["usage"]["input_tokens_details"] == {"cached_tokens": 16}
    assert len(upstream.asks(question)) == 1


def test_the_upstream_gets_every_byte_that_the_cli_sent(codex, upstream, question):
    events(codex())
    (asked,) = upstream.asks(question)
    sent = copy.deepcopy(RECORDED["body"])
    sent["input"][-1]["content"][0]["text"] = question
    assert asked.body == json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode()
    for name, value in RECORDED["headers"].items():
        assert asked.headers[name] == value


def test_the_next_turn_is_another_request(codex, upstream, question):
    done = [e["item"] for e in events(codex()) if e["type"] == "response.output_item.done"]
    asked = copy.deepcopy(RECORDED["body"]["input"])
    asked[-1]["content"][0]["text"] = question
    asked += [{name: item[name] for name in item if name != "status"} for item in done]
    asked += [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "a.py\nb.py"}
        for item in done[1:]
    ]
    next_turn = codex(input=asked)
    assert next_turn.getheader("x-cache") == "miss"
    events(next_turn)
    assert codex(input=asked).getheader("x-cache") == "exact"
    assert len(upstream.asks(question)) == 2


def test_another_session_shares_nothing_but_a_trace_does_not_count(codex, upstream, question):
    events(codex())
    traced = codex(headers={"x-client-request-id": "another", "traceparent": "00-1-2-01"})
    assert traced.getheader("x-cache") == "exact"
    assert codex(prompt_cache_key="another").getheader("x-cache") == "exact"
    other = codex(headers={"session_id": "another"})
    assert other.getheader("x-cache") == "miss"


def test_a_base_url_without_v1_leads_to_the_same_place(codex):
    events(codex(base=""))
    assert codex(base="/v1").getheader("x-cache") == "exact"


def test_hosted_tools_are_never_looked_up(codex):
    tools = [*RECORDED["body"]["tools"], {"type": "web_search", "external_web_access": True}]
    for _ in range(2):
        response = codex(tools=tools)
        events(response)
        assert response.getheader("x-cache") == "bypass"


def test_an_early_end_is_told_to_the_cli(codex, upstream, question):
    response = codex(model="org/failing")
    assert b"event: response.failed" in response.read()
    upstream.fail(question, error(429, "Try again in 1.5s.", code="rate_limit_exceeded"))
    limited = codex()
    assert limited.status == 429
    assert json.loads(limited.read())["error"]["code"] == "rate_limit_exceeded"


def test_pressing_escape_closes_the_upstream_s_connection(codex, upstream, question):
    response = codex(model="org/slow", tools=[])
    assert response.readline() == b"event: response.created\n"
    response.close()
    codex.hang_up()
    (asked,) = upstream.asks(question)
    assert asked.client_left.wait(20)
