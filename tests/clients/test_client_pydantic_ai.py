"""`pydantic-ai`: agents with tools and typed output, chat and Responses, streamed and plain."""

import pytest
from chats import ROBOT, TEXT
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from upstream import error


class Robot(BaseModel):
    """A robot."""

    name: str
    age: int


@pytest.fixture
async def agent(async_client: AsyncOpenAI):
    provider = OpenAIProvider(openai_client=async_client)

    def of(kind: str, *, model=OpenAIChatModel, **more) -> Agent:
        return Agent(model(f"org/{kind}", provider=provider), **more)

    return of


async def test_runs_replay_with_their_usage(agent, seen, question):
    runs = [await agent("chat").run(question) for _ in range(2)]
    assert [run.output for run in runs] == [TEXT, TEXT]
    assert [run.usage.input_tokens for run in runs] == [19, 19]
    assert [run.usage.cache_read_tokens for run in runs] == [8, 8]
    assert seen.words == ["miss", "exact"]


async def test_streamed_runs_replay_and_count(agent, seen, question):
    for _ in range(2):
        async with agent("chat").run_stream(question) as run:
            pieces = [piece async for piece in run.stream_text(delta=True, debounce_by=None)]
            assert run.usage.output_tokens == 10
        assert "".join(pieces) == TEXT
        assert len(pieces) > 1
    assert seen.words == ["miss", "exact"]


async def test_an_agent_calls_replayed_tools(agent, seen, question):
    asked: list[str] = []
    helper = agent("tools")

    @helper.tool_plain
    def weather(city: str) -> str:
        """How it is there."""
        asked.append(city)
        return f"sunny in {city}"

    for _ in range(2):
        assert (await helper.run(question)).output == TEXT
    assert sorted(asked) == ["Paris", "Paris", "Rome", "Rome"]
    assert seen.words == ["miss", "miss", "exact", "exact"]


async def test_typed_output_is_parsed_live_and_replayed(agent, seen, question):
    typed = agent("structured", output_type=Robot)
    for _ in range(2):
        assert (await typed.run(question)).output == Robot(**ROBOT)
    async with typed.run_stream(question) as run:
        assert await run.get_output() == Robot(**ROBOT)
    assert seen.words == ["miss", "exact", "exact"]


@pytest.mark.parametrize("first_streamed", [False, True])
async def test_responses_replay_in_both_forms(agent, seen, question, first_streamed):
    model = agent("chat", model=OpenAIResponsesModel)
    for streamed in (first_streamed, not first_streamed, first_streamed):
        if streamed:
            async with model.run_stream(question) as run:
                assert await run.get_output() == TEXT
                assert run.usage.output_tokens == 11
        else:
            run = await model.run(question)
            assert run.output == TEXT
            assert run.usage.output_tokens == 11
    assert seen.words == ["miss", "exact", "exact"]


async def test_reasoning_is_a_part_of_its_own(agent, seen, question):
    runs = [await agent("reasoning").run(question) for _ in range(2)]
    for run in runs:
        thought = [p.content for p in run.all_messages()[-1].parts if p.part_kind == "thinking"]
        assert thought == ["The user asks. I think it over."]
    assert seen.words == ["miss", "exact"]


async def test_errors_are_its_own(agent, upstream, question):
    upstream.fail(question, error(429, "Slow down.", code="rate_limit_exceeded"))
    with pytest.raises(ModelHTTPError) as caught:
        await agent("chat").run(question)
    assert caught.value.status_code == 429
    assert caught.value.body["code"] == "rate_limit_exceeded"


async def test_leaving_a_stream_closes_the_upstream_s_connection(agent, upstream, question):
    async with agent("slow").run_stream(question) as run:
        async for _ in run.stream_text(delta=True, debounce_by=None):
            break
    (asked,) = upstream.asks(question)
    assert asked.client_left.wait(20)
