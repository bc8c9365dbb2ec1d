import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answer import replay
from proxy.answer.payload import Payload, decode, encode
from proxy.answer.recording import Complete, StreamRecorder, record_plain
from proxy.call import Surface

USAGE = {
    "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 1},
}  # fmt: skip


def stored_plain(surface: Surface, body: dict[str, Any], *, indent: int | None = None) -> Payload:
    data = json.dumps(body, indent=indent).encode()
    num_choices = len(body.get("choices", ()))
    recording = record_plain(surface, 200, (), data, max_bytes=10**6, num_choices=num_choices)
    assert isinstance(recording, Complete), recording
    payload = decode(encode(recording.payload))
    assert payload is not None
    return payload


def stored_stream(surface: Surface, stream: bytes, *, num_choices: int = 1) -> Payload:
    recorder = StreamRecorder(surface, 200, (), max_bytes=10**6, num_choices=num_choices)
    recorder.feed(stream)
    recording = recorder.finish()
    assert isinstance(recording, Complete), recording
    payload = decode(encode(recording.payload))
    assert payload is not None
    return payload


def stream_of(chunks: list[dict[str, Any]]) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    *chunks, done = stream.split(b"\n\n")[:-1]
    assert done == b"data: [DONE]"
    return [json.loads(chunk.removeprefix(b"data: ")) for chunk in chunks]


def deltas(*steps: dict[str, Any], finish: str = "stop", **more: Any) -> bytes:
    base = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", **more}
    made = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in steps
    ]
    made.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    made.append({**base, "choices": [], "usage": USAGE})
    return stream_of(made) + b"data: [DONE]\n\n"


def assembled(
    stream: bytes, surface: Surface = Surface.CHAT, *, num_choices: int = 1
) -> dict[str, Any]:
    payload = stored_stream(surface, stream, num_choices=num_choices)
    plain: dict[str, Any] = json.loads(replay.plain(payload))
    return plain


@pytest.mark.parametrize("message", [None, {"role": "assistant", "content": "Hi"}, {}])
def test_a_message_beside_the_deltas_is_what_they_add_up_to(message: object) -> None:
    def chunk(delta: object, finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "message": message, "finish_reason": finish}
        return {"id": "c", "choices": [choice]}

    stream = stream_of([chunk({}), chunk({"content": "H"}), chunk({"content": "i"}, "stop")])

    plain = assembled(stream + b"data: [DONE]\n\n")
    assert plain["choices"][0]["message"] == {"role": "assistant", "content": "Hi"}


def test_what_was_taken_for_an_answer_and_is_none_is_unreplayable() -> None:
    payload = stored_plain(Surface.CHAT, {
        "choices": [{"index": 0, "message": {}, "finish_reason": "stop"}]
    })  # fmt: skip
    poisoned = msgspec.structs.replace(payload, body=b'{"choices": [{"message": null}]}')
    with pytest.raises(replay.Unreplayable):
        replay.stream(poisoned, include_usage=False)
    with pytest.raises(replay.Unreplayable):
        replay.plain(msgspec.structs.replace(payload, body=b"", frames=b"data: []\n\n"))


def test_a_recorded_stream_is_replayed_with_its_own_chunks() -> None:
    stream = deltas({"role": "assistant", "content": ""}, {"content": "He"}, {"content": "llo"})
    payload = stored_stream(Surface.CHAT, stream)

    without = chunks_of(replay.stream(payload, include_usage=False))
    with_usage = chunks_of(replay.stream(payload, include_usage=True))

    assert [c["choices"][0]["delta"] for c in without[:3]] == [
        {"role": "assistant", "content": ""}, {"content": "He"}, {"content": "llo"},
    ]  # fmt: skip
    assert not any("usage" in chunk for chunk in without)
    assert with_usage[-1]["usage"] == USAGE
    assert with_usage[-1]["choices"] == []
    assert [chunk["usage"] for chunk in with_usage[:-1]] == [None] * 4
    assert [{**chunk, "usage": 0} for chunk in with_usage[:-1]] == [
        {**chunk, "usage": 0} for chunk in without
    ]


def test_a_recorded_stream_is_put_together_for_a_plain_client() -> None:
    plain = assembled(
        deltas({"role": "assistant", "content": ""}, {"content": "He"}, {"content": "llo"},
               system_fingerprint="fp", service_tier="default")
    )  # fmt: skip
    assert plain == {
        "id": "c1", "object": "chat.completion", "created": 7, "model": "m",
        "system_fingerprint": "fp", "service_tier": "default",
        "choices": [{
            "index": 0, "message": {"role": "assistant", "content": "Hello"},
            "logprobs": None, "finish_reason": "stop",
        }],
        "usage": USAGE,
    }  # fmt: skip


def test_parallel_tool_calls_are_put_together_by_their_index() -> None:
    def call(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        function = {"arguments": arguments, **more.pop("function", {})}
        return {"tool_calls": [{"index": index, "function": function, **more}]}

    plain = assembled(
        deltas(
            {"role": "assistant", "content": None},
            call(0, "", id="t0", type="function", function={"name": "get"}),
            call(1, "", id="t1", type="function", function={"name": "put"}),
            call(0, '{"a"'), call(1, "{"), call(0, ":1}", id="t0", type="function"), call(1, "}"),
            finish="tool_calls",
        )
    )  # fmt: skip
    assert plain["choices"][0]["message"] == {
        "role": "assistant", "content": None,
        "tool_calls": [
            {"id": "t0", "type": "function", "function": {"name": "get", "arguments": '{"a":1}'}},
            {"id": "t1", "type": "function", "function": {"name": "put", "arguments": "{}"}},
        ],
    }  # fmt: skip


def test_every_field_of_the_deltas_is_kept() -> None:
    plain = assembled(
        deltas(
            {"role": "assistant", "content": "", "refusal": None},
            {"reasoning_content": "Think"},
            {"reasoning_content": "ing", "reasoning_details": [{"index": 0, "text": "a"}]},
            {"reasoning_details": [{"index": 0, "text": "b"}]},
            {"refusal": "I "}, {"refusal": "won't"},
            {"annotations": [{"type": "url_citation"}]}, {"annotations": [{"type": "file"}]},
            {"x_new": {"a": "1", "n": 1}}, {"x_new": {"a": "2", "n": 2, "b": [1]}},
        )
    )  # fmt: skip
    assert plain["choices"][0]["message"] == {
        "role": "assistant", "content": "", "refusal": "I won't",
        "reasoning_content": "Thinking",
        "reasoning_details": [{"index": 0, "text": "ab"}],
        "annotations": [{"type": "url_citation"}, {"type": "file"}],
        "x_new": {"a": "12", "n": 3, "b": [1]},
    }  # fmt: skip


def test_logprobs_and_all_choices_are_kept() -> None:
    def chunk(index: int, token: str, finish: str | None = None) -> dict[str, Any]:
        logprobs = {"content": [{"token": token, "logprob": -0.5, "top_logprobs": []}]}
        filters = {"hate": {"filtered": False, "severity": "safe"}}
        return {"id": "c", "choices": [{
            "index": index, "delta": {"content": token}, "finish_reason": finish,
            "logprobs": logprobs, "content_filter_results": filters, "token_ids": [1],
        }]}  # fmt: skip

    made = [chunk(1, "a"), chunk(0, "b"), chunk(1, "c", "length"), chunk(0, "d", "stop")]
    plain = assembled(stream_of(made) + b"data: [DONE]\n\n", num_choices=2)

    first, second = plain["choices"]
    assert (first["message"]["content"], second["message"]["content"]) == ("bd", "ac")
    assert (first["finish_reason"], second["finish_reason"]) == ("stop", "length")
    assert [item["token"] for item in second["logprobs"]["content"]] == ["a", "c"]
    assert first["content_filter_results"]["hate"] == {"filtered": False, "severity": "safe"}
    assert first["token_ids"] == [1, 1]


def test_legacy_completions_are_put_together_with_their_logprobs() -> None:
    def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
        logprobs = {"tokens": [text], "token_logprobs": [-0.5]}
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return {"id": "c", "object": "text_completion", "choices": [choice]}

    plain = assembled(
        stream_of([chunk("He"), chunk("llo", "stop")]) + b"data: [DONE]\n\n", Surface.COMPLETIONS
    )
    assert plain["object"] == "text_completion"
    assert plain["choices"] == [{
        "index": 0, "text": "Hello", "finish_reason": "stop",
        "logprobs": {"tokens": ["He", "llo"], "token_logprobs": [-0.5, -0.5]},
    }]  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(steps=st.lists(st.dictionaries(st.sampled_from(["content", "a", "name"]), JSON), max_size=5))
def test_no_delta_that_a_server_invents_breaks_a_replay(steps: list[dict[str, Any]]) -> None:
    plain = assembled(deltas(*steps))
    assert plain["choices"][0]["finish_reason"] == "stop"


TEXT = st.text(min_size=1, max_size=8)
CALL = st.fixed_dictionaries(
    {"id": TEXT, "type": st.just("function"),
     "function": st.fixed_dictionaries({"name": TEXT, "arguments": st.text(max_size=8)})}
)  # fmt: skip
MESSAGE = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": st.none() | st.text(max_size=8)},
    optional={
        "refusal": st.none() | TEXT,
        "reasoning_content": TEXT,
        "annotations": st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
        "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        "x_new": st.dictionaries(TEXT, TEXT, max_size=2),
    },
)
LOGPROBS = st.none() | st.just({"content": [{"token": "a", "logprob": -1.5}], "refusal": None})


@given(
    messages=st.lists(MESSAGE, min_size=1, max_size=3),
    logprobs=LOGPROBS,
    usage=st.none() | st.just(USAGE),
    indent=st.none() | st.just(2),
)
def test_a_plain_answer_streamed_and_added_up_again_is_the_same(
    messages: list[dict[str, Any]], logprobs: object, usage: object, indent: int | None
) -> None:
    body: dict[str, Any] = {
        "id": "c1", "object": "chat.completion", "created": 7, "model": "m",
        "system_fingerprint": "fp", "x_top": {"a": [1]},
        "choices": [
            {"index": index, "message": message, "logprobs": logprobs, "finish_reason": "stop",
             "x_choice": "y"}
            for index, message in enumerate(messages)
        ],
    }  # fmt: skip
    if usage:
        body["usage"] = usage
    payload = stored_plain(Surface.CHAT, body, indent=indent)

    stream = replay.stream(payload, include_usage=True)

    assert assembled(stream, num_choices=len(messages)) == body
    for chunk in chunks_of(stream):
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["id"], chunk["created"], chunk["model"]) == ("c1", 7, "m")
        assert isinstance(chunk["choices"], list)


def test_a_plain_answer_is_streamed_in_the_order_that_clients_expect() -> None:
    calls = [{"id": f"t{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
             for n in range(2)]  # fmt: skip
    message = {"role": "assistant", "content": "Hi", "refusal": None, "tool_calls": calls}
    body = {"id": "c1", "model": "m", "usage": USAGE, "choices": [
        {"index": 0, "message": message, "finish_reason": "tool_calls"}]}  # fmt: skip

    *chunks, usage = chunks_of(replay.stream(stored_plain(Surface.CHAT, body), include_usage=True))

    said = [chunk["choices"][0] for chunk in chunks]
    assert [choice["delta"] for choice in said] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Hi"},
        {"tool_calls": [{"index": 0, **calls[0]}]},
        {"tool_calls": [{"index": 1, **calls[1]}]},
        {},
    ]
    assert [choice["finish_reason"] for choice in said] == [None] * 4 + ["tool_calls"]
    assert usage["choices"] == []
    assert usage["usage"] == USAGE


def test_a_plain_legacy_completion_is_streamed_and_added_up_again() -> None:
    body = {
        "id": "c", "object": "text_completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "text": "Hi", "logprobs": None, "finish_reason": "length"}],
    }  # fmt: skip
    payload = stored_plain(Surface.COMPLETIONS, body)
    stream = replay.stream(payload, include_usage=False)
    assert assembled(stream, Surface.COMPLETIONS) == body
    assert [c["choices"][0]["text"] for c in chunks_of(stream)] == ["Hi", ""]


def test_a_plain_answer_is_replayed_byte_for_byte() -> None:
    body = {"choices": [{"index": 0, "message": {}, "finish_reason": "stop"}], "z": 1.0}
    payload = stored_plain(Surface.CHAT, body, indent=4)
    assert replay.plain(payload) == json.dumps(body, indent=4).encode()


RESPONSE = {
    "id": "r1", "object": "response", "status": "completed", "model": "m", "error": None,
    "output": [
        {"type": "reasoning", "id": "i0", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"type": "message", "id": "i1", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "Hello", "annotations": [{"type": "url_citation"}]},
            {"type": "refusal", "refusal": "No"}]},
        {"type": "function_call", "id": "i2", "status": "completed", "call_id": "t", "name": "f",
         "arguments": "{}"},
    ],
    "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
}  # fmt: skip


@pytest.mark.parametrize("indent", [None, 2])
def test_a_plain_response_is_streamed_in_its_own_grammar(indent: int | None) -> None:
    payload = stored_plain(Surface.RESPONSES, RESPONSE, indent=indent)

    stream = replay.stream(payload, include_usage=False)

    frames = stream.split(b"\n\n")[:-1]
    events = [json.loads(frame.split(b"\ndata: ")[1]) for frame in frames]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for frame, event in zip(frames, events, strict=True):
        assert frame.startswith(b"event: " + event["type"].encode() + b"\n")
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_text.annotation.added", "output_text.done", "content_part.done",
        "content_part.added", "refusal.delta", "refusal.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    assert events[-1]["response"] == RESPONSE
    again = stored_stream(Surface.RESPONSES, stream)
    assert json.loads(replay.plain(again)) == RESPONSE


def test_a_streamed_response_is_replayed_as_it_came() -> None:
    stream = replay.stream(stored_plain(Surface.RESPONSES, RESPONSE), include_usage=True)
    assert replay.stream(stored_stream(Surface.RESPONSES, stream), include_usage=True) == stream


def test_the_openai_client_reads_both_forms_of_one_entry() -> None:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    payload = stored_stream(Surface.CHAT, deltas({"role": "assistant", "content": "Hi"}))
    plain = ChatCompletion.model_validate(msgspec.json.decode(replay.plain(payload)))
    assert plain.choices[0].message.content == "Hi"
    for chunk in chunks_of(replay.stream(payload, include_usage=True)):
        ChatCompletionChunk.model_validate(chunk)
