"""A few clients against the bundled engine: the quickstart's config, a real model."""

import json
from typing import Literal

import pytest
from langchain_openai import ChatOpenAI
from openai import OpenAI
from proxyprocess import ROOT, ProxyProcess
from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    text = (ROOT / "configs/quickstart.yaml").read_text()
    for old, new in (
        ("listen: 127.0.0.1:8080", "listen: 127.0.0.1:0"),
        ("listen: 127.0.0.1:8081", "listen: 127.0.0.1:0"),
        ("path: var/rejoinder.db", f"path: {tmp_path_factory.mktemp('store')}/rejoinder.db"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    process = ProxyProcess(text)
    yield process
    assert process.stop() == 0


@pytest.fixture
def engine(quickstart, seen):
    with OpenAI(
        base_url=quickstart.url,
        api_key="unused",
        http_client=seen.sync_client(),
        max_retries=0,
        timeout=240,
    ) as client:
        yield client


def test_openai_streams_and_replays(engine, seen):
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Name a colour."}],
        "max_tokens": 12,
        "temperature": 0,
    }
    chunks = list(
        engine.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    plain = engine.chat.completions.create(**asked)
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert plain.choices[0].message.content == said != ""
    assert plain.choices[0].finish_reason == chunks[-2].choices[0].finish_reason
    assert plain.usage.to_dict() == chunks[-1].usage.to_dict()
    assert seen.words == ["miss", "exact"]


class Person(BaseModel):
    """What the engine has to write."""

    name: str = Field(max_length=8)
    mood: Literal["fröhlich 😀", "müde 😴"]


def test_openai_parses_structured_output(engine, seen):
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Invent a person, as JSON."}],
        "response_format": Person,
        "temperature": 1,
        "n": 2,
        "seed": 7,
    }
    first, again = [engine.chat.completions.parse(**asked) for _ in range(2)]
    people = [choice.message.parsed for choice in first.choices]
    assert all(isinstance(person, Person) for person in people)
    assert [choice.message.parsed for choice in again.choices] == people
    assert seen.words == ["miss", "exact"]


def test_openai_gets_tool_calls_plain_and_streamed(engine, seen):
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    }
    function = {"name": "get_weather", "parameters": parameters}
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0,
    }
    plain = engine.chat.completions.create(**asked).choices[0]
    (call,) = plain.message.tool_calls
    assert (plain.finish_reason, call.function.name) == ("tool_calls", "get_weather")
    assert set(json.loads(call.function.arguments)) == {"city"}
    with engine.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert streamed.message.tool_calls[0].function.arguments == call.function.arguments
    assert streamed.finish_reason == "tool_calls"
    assert seen.words == ["bypass", "bypass"], "an answer that calls tools is not kept"


def test_langchain_streams_and_replays(quickstart, seen):
    model = ChatOpenAI(
        model=MODEL,
        base_url=f"{quickstart.url}/v1",
        api_key="unused",
        http_client=seen.sync_client(),
        max_completion_tokens=12,
        temperature=0,
        max_retries=0,
    )
    live = "".join(chunk.content for chunk in model.stream("Name an animal."))
    assert model.invoke("Name an animal.").content == live != ""
    assert seen.words == ["miss", "exact"]


async def test_pydantic_ai_runs_and_replays(quickstart, seen):
    async with seen.async_client() as http:
        provider = OpenAIProvider(
            base_url=f"{quickstart.url}/v1", api_key="unused", http_client=http
        )
        settings = {"max_tokens": 12, "temperature": 0}
        agent = Agent(OpenAIChatModel(MODEL, provider=provider), model_settings=settings)
        first, again = [await agent.run("Name a fruit.") for _ in range(2)]
    assert first.output == again.output != ""
    assert first.usage.output_tokens == again.usage.output_tokens > 0
    assert seen.words == ["miss", "exact"]
