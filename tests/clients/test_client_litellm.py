"""`litellm` as a client: its own completion calls, with the proxy as an OpenAI-compatible API."""

import litellm
import pytest
from chats import CALLS, TEXT, USAGE
from surfaces import vector
from test_client_openai_chat import TOOL
from upstream import error


@pytest.fixture
def asked(proxy, question) -> dict:
    return {
        "api_base": f"{proxy.url}/v1",
        "api_key": "sk-test",
        "messages": [{"role": "user", "content": question}],
        "num_retries": 0,
        "max_retries": 0,
    }


def word(answer) -> str:
    """`X-Cache`, from where litellm keeps the headers."""
    return answer._hidden_params["additional_headers"]["llm_provider-x-cache"]


def said(answer) -> dict:
    """A completion without the id that litellm may make up."""
    return answer.model_dump(exclude={"id"})


def test_a_completion_replays(asked):
    first, again = (litellm.completion(model="openai/org/chat", **asked) for _ in range(2))
    assert first.choices[0].message.content == TEXT
    assert first.usage.total_tokens == USAGE["total_tokens"]
    assert said(first) == said(again)
    assert [word(first), word(again)] == ["miss", "exact"]


@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_replays(asked, upstream, question, usage):
    more = {"stream_options": {"include_usage": True}} if usage else {}
    runs = []
    for _ in range(2):
        chunks = list(litellm.completion(model="openai/org/chat", stream=True, **asked, **more))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == TEXT
        counted = [c.usage.total_tokens for c in chunks if getattr(c, "usage", None)]
        assert counted == ([29] if usage else [])
        runs.append([said(chunk) for chunk in chunks])
    assert [r["choices"] for r in runs[0]] == [r["choices"] for r in runs[1]]
    assert len(upstream.asks(question)) == 1


async def test_tools_and_reasoning_replay_async(asked, upstream, question):
    for _ in range(2):
        answer = await litellm.acompletion(model="openai/org/tools", tools=[TOOL], **asked)
        calls = answer.choices[0].message.tool_calls
        assert [call.id for call in calls] == [call["id"] for call in CALLS]
        assert [c.function.arguments for c in calls] == [c["function"]["arguments"] for c in CALLS]
        thought = await litellm.acompletion(model="openai/org/reasoning", **asked)
        assert thought.choices[0].message.reasoning_content == "The user asks. I think it over."
    assert len(upstream.asks(question)) == 2


def test_embeddings_replay(proxy, upstream, question):
    for _ in range(2):
        answer = litellm.embedding(
            model="openai/org/embed",
            input=[question],
            api_base=f"{proxy.url}/v1",
            api_key="sk-test",
            encoding_format="float",
        )
        assert answer.data[0]["embedding"] == vector(question)
    assert len(upstream.asks(question)) == 1


def test_responses_replay(asked, upstream, question):
    for name in ("messages", "num_retries", "max_retries"):
        del asked[name]
    for _ in range(2):
        answer = litellm.responses(model="openai/org/chat", input=question, **asked)
        assert answer.output[0].content[0].text == TEXT
    assert len(upstream.asks(question)) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (404, "NotFoundError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
    ],
)
def test_errors_are_its_own(asked, upstream, question, status, kind):
    upstream.fail(question, error(status, "So it is."))
    with pytest.raises(getattr(litellm.exceptions, kind)):
        litellm.completion(model="openai/org/chat", **asked)
