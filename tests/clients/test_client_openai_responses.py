"""The `openai` package on the Responses API."""

import json

import openai
import pytest
from chats import ROBOT, TEXT
from responses import COMMAND
from test_client_openai_chat import Robot

TOOL = {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize(
    ("kind", "more"),
    [("chat", {}), ("tools", {"tools": [TOOL]}), ("refusal", {}), ("structured", {})],
)
def test_one_answer_serves_both_forms(client, seen, question, kind, more):
    asked = {"model": f"org/{kind}", **more}

    def plain(text: str) -> dict:
        return client.responses.create(input=text, **asked).to_dict()

    def streamed(text: str) -> list[dict]:
        with client.responses.create(input=text, stream=True, **asked) as events:
            return [event.to_dict() for event in events]

    one, two = f"{question} 1", f"{question} 2"
    first, again = plain(one), plain(one)
    replayed = streamed(one)
    live, repeated = streamed(two), streamed(two)
    back = plain(two)
    assert seen.words == ["miss", "exact", "exact", "miss", "exact", "exact"]
    assert first == again == back == replayed[-1]["response"]
    assert live == repeated
    assert replayed[0]["type"] == "response.created"
    assert [event["sequence_number"] for event in replayed] == list(range(len(replayed)))


def test_the_helper_adds_up_live_and_replayed_events(client, seen, question):
    for _ in range(2):
        with client.responses.stream(model="org/chat", input=question) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
            final = stream.get_final_response()
        assert text == final.output_text == TEXT
        assert final.usage.output_tokens_details.reasoning_tokens == 5
    assert seen.words == ["miss", "exact"]


def test_the_helper_reads_a_plain_entry_as_a_stream(client, seen, question):
    client.responses.create(model="org/tools", input=question, tools=[TOOL])
    with client.responses.stream(model="org/tools", input=question, tools=[TOOL]) as stream:
        done = [e for e in stream if e.type == "response.function_call_arguments.done"]
        final = stream.get_final_response()
    assert [json.loads(event.arguments) for event in done] == [COMMAND, COMMAND]
    assert [item.type for item in final.output] == ["reasoning", "function_call", "function_call"]
    assert final.output[0].encrypted_content.startswith("gAAAAA")
    assert seen.words == ["miss", "exact"]


def test_parse_gives_objects_live_and_replayed(client, seen, question):
    for _ in range(2):
        answer = client.responses.parse(model="org/structured", input=question, text_format=Robot)
        assert answer.output_parsed == Robot(**ROBOT)
    with client.responses.stream(
        model="org/structured", input=question, text_format=Robot
    ) as stream:
        assert stream.get_final_response().output_parsed == Robot(**ROBOT)
    assert seen.words == ["miss", "exact", "exact"]


async def test_async_streams_replay(async_client, seen, question):
    runs = []
    for _ in range(2):
        stream = await async_client.responses.create(model="org/chat", input=question, stream=True)
        runs.append([event.to_dict() async for event in stream])
    assert runs[0] == runs[1]
    assert seen.words == ["miss", "exact"]


def test_a_failed_response_is_told_and_never_stored(client, upstream, question):
    for _ in range(2):
        with client.responses.create(model="org/failing", input=question, stream=True) as events:
            last = list(events)[-1]
        assert last.type == "response.failed"
        assert last.response.error.code == "server_error"
    assert len(upstream.asks(question)) == 2


def test_a_broken_connection_is_never_taken_for_an_end(client, upstream, question):
    for _ in range(2):
        kinds = []
        with (
            client.responses.create(model="org/cut", input=question, stream=True) as events,
            pytest.raises(openai.APIError, match="upstream main"),
        ):
            for event in events:
                kinds.append(event.type)
        assert kinds[-1] == "response.output_text.delta"
    assert len(upstream.asks(question)) == 2


def test_what_the_provider_remembers_is_not_looked_up(client, seen, question):
    for _ in range(2):
        client.responses.create(
            model="org/chat", input=question, previous_response_id="resp_before"
        )
    assert seen.words == ["bypass", "bypass"]


def test_leaving_a_stream_closes_the_upstream_s_connection(client, upstream, question):
    with client.responses.create(model="org/slow", input=question, stream=True) as events:
        next(iter(events))
    (asked,) = upstream.asks(question)
    assert asked.client_left.wait(20)


def test_retrieving_a_response_is_passed_through(client):
    with pytest.raises(openai.NotFoundError, match="Invalid URL"):
        client.responses.retrieve("resp_1")
