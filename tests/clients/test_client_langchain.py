"""`langchain-openai`: chat, streams, tools, structured output, embeddings, Responses."""

import openai
import pytest
from chats import CALLS, ROBOT, TEXT, USAGE
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel
from surfaces import vector
from upstream import error


class Robot(BaseModel):
    """A robot."""

    name: str
    age: int


@tool
def weather(city: str) -> str:
    """How it is there."""
    return f"sunny in {city}"


@pytest.fixture
def chat(proxy, seen):
    def of(kind: str, **more) -> ChatOpenAI:
        return ChatOpenAI(
            model=f"org/{kind}",
            base_url=f"{proxy.url}/v1",
            api_key="sk-test",
            http_client=seen.sync_client(),
            http_async_client=seen.async_client(),
            max_retries=0,
            **more,
        )

    return of


def same(message) -> dict:
    """A message without what LangChain makes up for each run."""
    return message.model_dump(exclude={"id"})


def test_invoke_replays_message_usage_and_metadata(chat, seen, question):
    model = chat("chat")
    first, again = (model.invoke(question) for _ in range(2))
    assert first.content == TEXT
    assert first.usage_metadata["total_tokens"] == USAGE["total_tokens"]
    assert first.usage_metadata["input_token_details"]["cache_read"] == 8
    assert same(first) == same(again)
    assert seen.words == ["miss", "exact"]


def test_streams_replay_with_usage_where_it_is_asked_for(chat, seen, question):
    for usage in (True, False):
        runs = [list(chat("chat", stream_usage=usage).stream(question)) for _ in range(2)]
        assert "".join(chunk.content for chunk in runs[0]) == TEXT
        assert [same(chunk) for chunk in runs[0]] == [same(chunk) for chunk in runs[1]]
        counted = [chunk for chunk in runs[0] if chunk.usage_metadata]
        assert len(counted) == (1 if usage else 0)
    assert seen.words == ["miss", "exact", "exact", "exact"]


async def test_async_streams_replay_what_was_recorded_plain(chat, seen, question):
    model = chat("chat")
    plain = await model.ainvoke(question)
    chunks = [chunk async for chunk in model.astream(question)]
    assert "".join(chunk.content for chunk in chunks) == plain.content == TEXT
    assert seen.words == ["miss", "exact"]


def test_parallel_tool_calls_survive_plain_and_streamed(chat, seen, question):
    model = chat("tools").bind_tools([weather])
    expected = [(call["id"], "weather") for call in CALLS]
    answers = [model.invoke(question), model.invoke(question)]
    total = None
    for chunk in model.stream(question):
        total = chunk if total is None else total + chunk
    for answer in (*answers, total):
        assert [(call["id"], call["name"]) for call in answer.tool_calls] == expected
        assert [call["args"]["city"] for call in answer.tool_calls] == ["Paris", "Rome"]
    results = [weather.invoke(call) for call in answers[1].tool_calls]
    for _ in range(2):
        assert model.invoke([("user", question), answers[1], *results]).content == TEXT
    assert seen.words == ["miss", "exact", "exact", "miss", "exact"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output_is_parsed_live_and_replayed(chat, seen, question, method):
    model = chat("structured").with_structured_output(Robot, method=method)
    for _ in range(2):
        assert model.invoke(f"{question} In JSON.") == Robot(**ROBOT)
    assert seen.words == ["miss", "exact"]


def test_responses_replay_in_both_forms(chat, seen, question):
    model = chat("chat", use_responses_api=True, output_version="responses/v1")
    first, again = (model.invoke(question) for _ in range(2))
    assert same(first) == same(again)
    assert first.text == TEXT
    text = "".join(chunk.text for chunk in model.stream(question))
    assert text == TEXT
    assert seen.words == ["miss", "exact", "exact"]


def test_errors_are_openai_s_own(chat, upstream, question):
    upstream.fail(question, error(429, "Slow down.", code="rate_limit_exceeded"))
    with pytest.raises(openai.RateLimitError):
        chat("chat").invoke(question)


def test_leaving_a_stream_closes_the_upstream_s_connection(chat, upstream, question):
    stream = chat("slow").stream(question)
    next(stream)
    stream.close()
    (asked,) = upstream.asks(question)
    assert asked.client_left.wait(20)


def test_embeddings_are_cached_one_by_one(proxy, seen, upstream, question):
    model = OpenAIEmbeddings(
        model="org/embed",
        base_url=f"{proxy.url}/v1",
        api_key="sk-test",
        http_client=seen.sync_client(),
        check_embedding_ctx_length=False,  # it would load a tokenizer from elsewhere
    )
    texts = [f"{question} {n}" for n in range(3)]
    assert model.embed_documents(texts) == [vector(text) for text in texts]
    assert model.embed_query(texts[1]) == vector(texts[1])
    assert seen.words == ["miss", "exact"]
    assert len(upstream.asks(question)) == 1
