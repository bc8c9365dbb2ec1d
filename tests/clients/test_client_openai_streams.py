"""The `openai` package, streamed chat: live, replayed, recorded plain and replayed streamed."""

import openai
import pytest
from chats import CALLS, ROBOT, TEXT
from test_client_openai_chat import TOOL, Robot, messages

KINDS = [
    ("chat", {}),
    ("chat", {"n": 2}),
    ("tools", {"tools": [TOOL]}),
    ("reasoning", {}),
    ("refusal", {}),
    ("cited", {}),
    ("logprobs", {"logprobs": True, "top_logprobs": 2}),
]
WITH_USAGE = {"stream_options": {"include_usage": True}}


def streamed(client, kind: str, question: str, **more) -> list[dict]:
    chunks = client.chat.completions.create(
        model=f"org/{kind}", messages=messages(question), stream=True, **more
    )
    return [chunk.to_dict() for chunk in chunks]


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_a_streamed_hit_repeats_every_chunk_of_its_miss(client, seen, question, kind, more):
    first, again = (streamed(client, kind, question, **more) for _ in range(2))
    assert seen.words == ["miss", "exact"]
    assert first == again
    assert {(c["id"], c["created"], c["model"]) for c in first} == {
        (first[0]["id"], first[0]["created"], f"org/{kind}")
    }
    assert all("usage" not in chunk for chunk in first)


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_plain_and_streamed_answers_are_one(client, seen, question, kind, more):
    """Whichever form came first, the other one says the same, in the SDK's own adding up."""
    asked = {"model": f"org/{kind}", "messages": messages(question), **more}

    def accumulated(text: str) -> dict:
        with client.chat.completions.stream(
            **{**asked, "messages": messages(text)}, **WITH_USAGE
        ) as stream:
            return stream.get_final_completion().to_dict()

    def plain(text: str) -> dict:
        return client.chat.completions.create(**{**asked, "messages": messages(text)}).to_dict()

    one, two = f"{question} 1", f"{question} 2"
    forms = [plain(one), accumulated(one), accumulated(two), plain(two)]
    assert seen.words == ["miss", "exact", "miss", "exact"]
    whole = [without_noise(form) for form in forms]
    assert whole[0] == whole[1]
    assert whole[2] == whole[0]
    assert whole[3] == whole[0]


def without_noise(completion: dict) -> dict:
    """What the SDK adds when it adds up chunks: `parsed`, indices of tool calls, empty fields."""
    if isinstance(completion, list):
        return [without_noise(item) for item in completion]
    if not isinstance(completion, dict):
        return completion
    noise = {"parsed", "parsed_arguments", "obfuscation"}
    if "function" in completion:
        noise.add("index")
    return {
        name: without_noise(value)
        for name, value in completion.items()
        if name not in noise and value not in (None, [])
    }


def test_usage_comes_only_when_it_is_asked_for(client, upstream, seen, question):
    bare = streamed(client, "chat", question)
    asked = streamed(client, "chat", question, **WITH_USAGE)
    not_asked = streamed(client, "chat", question, stream_options={"include_usage": False})
    assert seen.words == ["miss", "exact", "exact"]
    assert [c for c in bare + not_asked if c.get("usage")] == []
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["total_tokens"] == 29
    assert all(chunk["choices"] for chunk in asked[:-1])
    (sent,) = upstream.asks(question)
    assert sent.json["stream_options"]["include_usage"] is True


def test_stream_helpers_tell_the_same_events_twice(client, seen, question):
    runs = []
    for _ in range(2):
        with client.chat.completions.stream(
            model="org/structured", messages=messages(question), response_format=Robot
        ) as stream:
            runs.append([repr(event) for event in stream])
            final = stream.get_final_completion()
        assert final.choices[0].message.parsed == Robot(**ROBOT)
    assert seen.words == ["miss", "exact"]
    assert runs[0] == runs[1]
    assert [event for event in runs[0] if event.startswith("ContentDoneEvent")]


def test_helpers_add_up_parallel_tool_calls(client, seen, question):
    for _ in range(2):
        with client.chat.completions.stream(
            model="org/tools", messages=messages(question), tools=[TOOL]
        ) as stream:
            done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
            message = stream.get_final_completion().choices[0].message
        assert [(e.index, e.name, e.arguments) for e in done] == [
            (n, c["function"]["name"], c["function"]["arguments"]) for n, c in enumerate(CALLS)
        ]
        assert [call.id for call in message.tool_calls] == [call["id"] for call in CALLS]
    assert seen.words == ["miss", "exact"]


async def test_async_helpers_stream_and_replay(async_client, seen, question):
    for _ in range(2):
        async with async_client.chat.completions.stream(
            model="org/chat", messages=messages(question), **WITH_USAGE
        ) as stream:
            text = "".join([e.delta async for e in stream if e.type == "content.delta"])
            final = await stream.get_final_completion()
        assert text == TEXT
        assert final.usage.total_tokens == 29
    assert seen.words == ["miss", "exact"]


def test_raw_streams_end_in_done_and_carry_stream_headers(client, question):
    texts = []
    for word in ("miss", "exact"):
        with client.chat.completions.with_streaming_response.create(
            model="org/chat", messages=messages(question), stream=True
        ) as response:
            assert response.headers["x-cache"] == word
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert response.headers["cache-control"] == "no-cache, no-transform"
            texts.append("".join(response.iter_text()))
    assert texts[0] == texts[1]
    assert texts[0].endswith("data: [DONE]\n\n")


def test_leaving_a_stream_closes_the_upstream_s_connection(client, upstream, seen, question):
    stream = client.chat.completions.create(
        model="org/slow", messages=messages(question), stream=True
    )
    assert next(iter(stream)).choices[0].delta.role == "assistant"
    stream.close()
    (asked,) = upstream.asks(question)
    assert asked.client_left.wait(20)
    with client.chat.completions.create(
        model="org/slow", messages=messages(question), stream=True
    ) as second:
        next(iter(second))
    assert seen.words == ["miss", "miss"]  # half an answer is none


async def test_leaving_an_async_stream_closes_it_too(async_client, upstream, question):
    stream = await async_client.chat.completions.create(
        model="org/slow", messages=messages(question), stream=True
    )
    async for _ in stream:
        break
    await stream.close()
    (asked,) = upstream.asks(question)
    assert asked.client_left.wait(20)


def test_an_error_in_mid_stream_is_raised_and_never_stored(client, upstream, question):
    for _ in range(2):
        stream = client.chat.completions.create(
            model="org/dying", messages=messages(question), stream=True
        )
        with pytest.raises(openai.APIError, match="had an error"):
            list(stream)
    assert len(upstream.asks(question)) == 2


def test_a_broken_connection_is_raised_and_never_stored(client, upstream, question):
    for _ in range(2):
        stream = client.chat.completions.create(
            model="org/cut", messages=messages(question), stream=True
        )
        with pytest.raises(openai.APIError):
            list(stream)
    assert len(upstream.asks(question)) == 2


def test_signs_of_life_are_skipped_and_not_replayed(client, seen, question):
    with client.chat.completions.with_streaming_response.create(
        model="org/thinking", messages=messages(question), stream=True
    ) as response:
        assert ": keep-alive\n\n" in "".join(response.iter_text())
    live = streamed(client, "thinking", f"{question} again")
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in live) == TEXT
    assert streamed(client, "thinking", f"{question} again") == live
    assert seen.words == ["miss", "miss", "exact"]
