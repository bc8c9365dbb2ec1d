import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.answer import replay
from proxy.answer.grammar import DONE_FRAME, Discarded, Frame, FrameKind
from proxy.answer.recording import Complete, Recording, StreamRecorder, record_plain
from proxy.call import Surface, Usage

BASE = {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m-1"}
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
DONE = b"data: [DONE]\n\n"


def frame(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return frame({**BASE, "choices": [choice], **more})


ROLE = chunk({"role": "assistant", "content": ""})
HELLO = chunk({"content": "Hello"})
STOP = chunk({}, "stop")
USAGE_CHUNK = frame({**BASE, "choices": [], "usage": USAGE})


def record(
    *chunks: bytes,
    surface: Surface = Surface.CHAT,
    max_bytes: int = 20_000,
    status: int = 200,
    num_choices: int | None = 1,
) -> Recording:
    recorder = StreamRecorder(surface, status, (), max_bytes=max_bytes, num_choices=num_choices)
    for data in chunks:
        recorder.feed(data)
    return recorder.finish()


def kept(recording: Recording) -> Complete:
    assert isinstance(recording, Complete), recording
    return recording


def reason(recording: Recording) -> str:
    assert isinstance(recording, Discarded)
    return recording.reason


def kinds(frames: list[Frame]) -> list[FrameKind]:
    return [frame.kind for frame in frames]


def test_a_whole_stream_is_recorded_with_its_chunk_boundaries() -> None:
    recording = kept(record(ROLE, HELLO, STOP, USAGE_CHUNK, DONE))

    assert recording.payload.frames == ROLE + HELLO + STOP
    assert recording.payload.usage_frame == USAGE_CHUNK
    assert recording.usage == Usage(input_tokens=5, output_tokens=2)
    assert recording.model == "m-1"
    assert recording.finish_reasons == ("stop",)
    assert not recording.has_tool_calls


@given(places=st.lists(st.integers(0, 900), max_size=9))
def test_the_recording_does_not_depend_on_the_cuts_of_the_network(places: list[int]) -> None:
    stream = ROLE + chunk({"content": "你好 🙂"}) + STOP + USAGE_CHUNK + DONE
    ends = sorted({place % len(stream) for place in places})
    pieces = [stream[a:b] for a, b in zip([0, *ends], [*ends, len(stream)], strict=True)]

    assert record(*pieces) == record(stream)
    assert isinstance(record(stream), Complete)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        ([ROLE, HELLO, STOP], "no terminal event"),
        ([ROLE, HELLO, DONE], "choice 0 has no finish reason"),
        ([ROLE, HELLO, STOP, b"data: {"], "middle of an event"),
        ([ROLE, HELLO, chunk({}, "content_filter"), DONE], "ended with content_filter"),
        ([ROLE, HELLO, chunk({}, "abort"), DONE], "ended with abort"),
        ([USAGE_CHUNK, DONE], "no choices"),
        ([frame({**BASE, "choices": []}), DONE], "no choices"),
        ([ROLE, frame({"error": {"message": "boom"}}), STOP, DONE], "tells an error"),
        ([ROLE, frame({"object": "error", "message": "boom"}), STOP, DONE], "tells an error"),
        ([ROLE, b"event: error\ndata: {}\n\n", STOP, DONE], "tells an error"),
        ([ROLE, chunk({"x": "?"}).replace(b"?", b"\\ud800"), STOP, DONE], "form of one"),
        ([ROLE, chunk({"x": "?"}).replace(b"?", b"\xff"), STOP, DONE], "form of one"),
        ([ROLE, chunk({"x": 75}).replace(b"75", b"[" * 9000 + b"]" * 9000), STOP, DONE], "form of"),
        ([ROLE, b"data: not json\n\n", STOP, DONE], "form of one"),
        ([ROLE, b"data: 1\n\n", STOP, DONE], "form of one"),
        ([ROLE, b'data: {"choices":[]},{"choices":[]}\n\n', STOP, DONE], "form of one"),
        ([ROLE, chunk({"content": "x" * 20_000}), STOP, DONE], "larger than 20000 bytes"),
        ([], "no terminal event"),
    ],
)
def test_what_is_not_a_whole_answer_is_discarded_with_its_reason(
    stream: list[bytes], why: str
) -> None:
    assert why in reason(record(*stream))


def test_frames_flow_on_after_the_recording_was_given_up() -> None:
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=100, num_choices=1)
    frames = [frame for data in (ROLE, HELLO, STOP, DONE) for frame in recorder.feed(data)]

    assert [frame.data for frame in frames] == [ROLE, HELLO, STOP, DONE]
    assert isinstance(recorder.finish(), Discarded)


def without_index(data: bytes) -> bytes:
    return data.replace(b'"index":0,', b"")


@pytest.mark.parametrize(
    ("stream", "num_choices", "why"),
    [
        ([HELLO, STOP, chunk({"content": "x"}, index=1), DONE], 2, "choice 1 has no finish"),
        ([HELLO, STOP, chunk({}, "content_filter", index=1), DONE], 2, "choice 1 ended with"),
        ([HELLO, STOP, DONE], 2, "1 choices of 2"),
        ([HELLO, STOP, chunk({}, "stop", index=1), DONE], 1, "2 choices of 1"),
        ([HELLO, STOP, DONE], None, "cannot be told"),
        ([without_index(HELLO), STOP, chunk({}, "stop", index=1), DONE], 2, "without an index"),
        ([frame({"choices": [{"delta": {}, "finish_reason": None},
                             {"delta": {}, "finish_reason": "stop"}]}), DONE], 1, "comes twice"),
    ],
)  # fmt: skip
def test_a_stream_without_one_of_its_choices_is_discarded(
    stream: list[bytes], num_choices: int | None, why: str
) -> None:
    assert why in reason(record(*stream, num_choices=num_choices))


def test_a_bad_finish_reason_is_not_taken_back_by_a_good_one() -> None:
    stream = [HELLO, chunk({}, "content_filter"), STOP, DONE]
    assert reason(record(*stream)) == "choice 0 ended with content_filter"


def test_a_single_choice_needs_no_index() -> None:
    assert kept(record(without_index(HELLO), without_index(STOP), DONE)).finish_reasons == ("stop",)


@pytest.mark.parametrize("status", [201, 202, 206, 299, 302])
def test_a_stream_of_another_status_is_discarded(status: int) -> None:
    assert reason(record(HELLO, STOP, DONE, status=status)) == f"status {status}"


@pytest.mark.parametrize(
    "odd",
    [b"data: {}\n\n", b"data: { }\n\n", b'data: {"usage": null}\n\n',
     chunk({"tool_calls": [None]}), chunk({"tool_calls": "x"}),
     frame({"choices": [{"index": 0, "message": {"content": "Hello"}}]})],
)  # fmt: skip
def test_a_stream_that_could_not_be_replayed_is_discarded(odd: bytes) -> None:
    assert reason(record(HELLO, odd, STOP, DONE)).startswith("a chunk")


@pytest.mark.parametrize("done", [b"data: [DONE] \n\n", b"event: done\ndata:[DONE]\n\n",
                                  b"data: [DONE] \n"])  # fmt: skip
def test_the_terminal_event_is_known_in_any_spelling(done: bytes) -> None:
    assert kept(record(HELLO, STOP, done)).payload.frames == HELLO + STOP


@pytest.mark.parametrize("usage", [{**USAGE, "prompt_tokens_details": []}, [1], "7"])
def test_usage_of_an_odd_form_is_not_shown_to_who_did_not_ask(usage: object) -> None:
    counted = chunk({"content": "x"}, usage=usage)
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)

    frames = [f for data in (counted, STOP, DONE) for f in recorder.feed(data)]

    assert [f.bare for f in frames] == [chunk({"content": "x"}), STOP, b"", DONE]
    assert json.loads(frames[2].data[6:])["usage"] == usage


@pytest.mark.parametrize("end", [{}, {"usage": None}, {"usage": None, "obfuscation": "a}b]"}])
def test_a_null_usage_within_a_delta_is_the_answers_own(end: dict[str, Any]) -> None:
    mine = {"content": "x", "meta": {"a": 1, "usage": None}}
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)

    (only,) = recorder.feed(chunk(mine, **end))

    assert only.data == chunk(mine, **end)
    assert only.bare == chunk(mine, **{n: said for n, said in end.items() if n != "usage"})


def test_all_choices_of_a_stream_are_waited_for() -> None:
    stream = [chunk({"content": "a"}, index=1), chunk({"content": "b"}),
              chunk({}, "length", index=1), STOP, DONE]  # fmt: skip
    assert kept(record(*stream, num_choices=2)).finish_reasons == ("stop", "length")


def test_usage_that_nobody_asked_for_is_seen_by_nobody() -> None:
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    with_null = chunk({"content": "x"}, usage=None)
    frames = [f for data in (with_null, STOP, USAGE_CHUNK, DONE) for f in recorder.feed(data)]

    assert kinds(frames) == [
        FrameKind.CONTENT, FrameKind.CONTENT, FrameKind.USAGE, FrameKind.DONE
    ]  # fmt: skip
    assert [frame.data for frame in frames] == [with_null, STOP, USAGE_CHUNK, DONE]
    assert [frame.bare for frame in frames] == [chunk({"content": "x"}), STOP, b"", DONE]


@given(
    text=st.text(alphabet=st.sampled_from(',"usage:null{} \\\n') | st.characters(codec="utf-8")),
    ascii_only=st.booleans(),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]),
    usage_first=st.booleans(),
)
def test_taking_out_null_usage_never_touches_a_string(
    text: str, ascii_only: bool, separators: tuple[str, str], usage_first: bool
) -> None:
    content = {**BASE, text: 1, "choices": [{"index": 0, "delta": {"content": text, "x": text}}]}
    content.pop("usage", None)
    value = {"usage": None, **content} if usage_first else {**content, "usage": None}
    data = json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode()

    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10**6, num_choices=1)
    (seen,) = recorder.feed(b"data: " + data + b"\n\n")

    assert json.loads(seen.bare[6:]) == content
    assert json.loads(seen.data[6:]) == value


def test_the_words_of_null_usage_inside_a_string_stay() -> None:
    sly = chunk({"content": ',"usage":null'})
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    (seen,) = recorder.feed(sly)
    assert seen.bare == seen.data == sly


def test_usage_on_a_content_chunk_becomes_a_chunk_of_its_own() -> None:
    odd = chunk({"content": "b"}, "stop", usage=USAGE)
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    frames = [f for data in (chunk({"content": "a"}), odd, DONE) for f in recorder.feed(data)]

    assert kinds(frames) == [
        FrameKind.CONTENT, FrameKind.CONTENT, FrameKind.USAGE, FrameKind.DONE
    ]  # fmt: skip
    assert frames[1].bare == chunk({"content": "b"}, "stop")
    assert json.loads(frames[1].data[6:])["usage"] is None
    assert json.loads(frames[2].data[6:]) == {**BASE, "choices": [], "usage": USAGE}
    assert kept(recorder.finish()).usage == Usage(input_tokens=5, output_tokens=2)


def test_usage_that_grows_along_the_stream_is_given_once_with_its_last_numbers() -> None:
    stream = [
        chunk({"content": "a"}, usage={"prompt_tokens": 5, "completion_tokens": n})
        for n in range(3)
    ]
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    frames = [frame for data in (*stream, STOP, DONE) for frame in recorder.feed(data)]

    assert kinds(frames).count(FrameKind.USAGE) == 1
    assert recorder.finish().bill.counted == Usage(input_tokens=5, output_tokens=2)


def test_zero_usage_is_not_missing_usage() -> None:
    zero = frame({**BASE, "choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}})
    with_zero = kept(record(ROLE, STOP, zero, DONE))
    without = kept(record(ROLE, STOP, DONE))

    assert with_zero.payload.usage_known
    assert with_zero.payload.usage_frame == zero
    assert not without.payload.usage_known
    assert with_zero.usage == without.usage == Usage()


@pytest.mark.parametrize("tail", [b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n"])
def test_a_terminal_event_without_its_blank_line_still_ends_the_stream(tail: bytes) -> None:
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    for data in (ROLE, STOP, USAGE_CHUNK, tail):
        recorder.feed(data)

    frames = recorder.end()
    assert [frame.data for frame in frames] == [USAGE_CHUNK, DONE_FRAME]
    assert recorder.end() == []
    assert isinstance(recorder.finish(), Complete)


def test_usage_is_still_given_when_the_stream_ends_without_its_terminal_event() -> None:
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    for data in (ROLE, STOP, USAGE_CHUNK):
        recorder.feed(data)
    assert kinds(recorder.end()) == [FrameKind.USAGE]
    assert isinstance(recorder.finish(), Discarded)


def test_what_follows_the_terminal_event_is_dropped() -> None:
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    frames = recorder.feed(ROLE + STOP + DONE + HELLO + DONE)
    assert [frame.data for frame in frames] == [ROLE, STOP, DONE]
    assert recorder.feed(HELLO) == []
    assert recorder.done
    assert kept(recorder.finish()).payload.frames == ROLE + STOP


def test_comments_are_passed_on_and_not_recorded() -> None:
    recorder = StreamRecorder(Surface.CHAT, 200, (), max_bytes=10_000, num_choices=1)
    (comment,) = recorder.feed(b": still thinking\n\n")
    assert comment.kind is FrameKind.COMMENT
    assert comment.bare == b": still thinking\n\n"
    recorder.feed(ROLE + STOP + DONE)
    assert kept(recorder.finish()).payload.frames == ROLE + STOP


def test_tool_calls_are_a_complete_answer_and_known_as_such() -> None:
    call = {"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": ""}}
    stream = [chunk({"role": "assistant", "tool_calls": [call]}), chunk({}, "tool_calls"), DONE]
    assert kept(record(*stream)).has_tool_calls
    assert kept(record(chunk({"function_call": {"name": "f"}}), STOP, DONE)).has_tool_calls
    assert not kept(record(chunk({"tool_calls": []}), STOP, DONE)).has_tool_calls
    assert not kept(record(chunk({"tool_calls": None}), STOP, DONE)).has_tool_calls


def test_cached_tokens_of_the_upstream_are_read_wherever_it_puts_them() -> None:
    for usage in (
        {**USAGE, "prompt_tokens_details": {"cached_tokens": 3}},
        {**USAGE, "prompt_cache_hit_tokens": 3},
        {**USAGE, "cache_read_input_tokens": 3},
        {**USAGE, "cacheReadInputTokens": 3},
        {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}},
    ):
        recording = kept(record(STOP, frame({**BASE, "choices": [], "usage": usage}), DONE))
        assert recording.usage == Usage(input_tokens=5, output_tokens=2, cached_tokens=3)


def test_legacy_completions_are_recorded_by_the_same_rules() -> None:
    text = frame({"id": "c", "model": "m", "choices": [{"index": 0, "text": "a"}]})
    stop = frame({"id": "c", "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    assert kept(record(text, stop, DONE, surface=Surface.COMPLETIONS)).model == "m"
    assert "finish" in reason(record(text, DONE, surface=Surface.COMPLETIONS))


RESPONSE = {
    "id": "r1", "object": "response", "status": "completed", "model": "m-1", "error": None,
    "output": [{"type": "message", "id": "i1", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}]}],
    "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7},
}  # fmt: skip


def event(kind: str, *, named: bool = True, **members: Any) -> bytes:
    head = b"event: " + kind.encode() + b"\n" if named else b""
    return head + frame({"type": kind, **members})


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("done", [True, False])
def test_a_completed_response_is_recorded_with_and_without_event_lines(
    named: bool, done: bool
) -> None:
    created = event("response.created", named=named, response={"usage": None})
    delta = event("response.output_text.delta", named=named, delta="Hello")
    completed = event("response.completed", named=named, response=RESPONSE)
    recorder = StreamRecorder(Surface.RESPONSES, 200, (), max_bytes=10_000, num_choices=1)

    frames = recorder.feed(created + delta + completed) + recorder.feed(DONE if done else b"")

    assert kinds(frames) == [FrameKind.CONTENT, FrameKind.CONTENT, FrameKind.DONE]
    assert [frame.bare for frame in frames] == [created, delta, completed]
    recording = kept(recorder.finish())
    assert recording.payload.frames == created + delta + completed
    assert recording.usage == Usage(input_tokens=5, output_tokens=2)
    assert json.loads(replay.plain(recording.payload)) == RESPONSE


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (event("response.failed", response={**RESPONSE, "status": "failed"}), "response.failed"),
        (event("response.incomplete", response=RESPONSE), "response.incomplete"),
        (event("response.completed", response={**RESPONSE, "status": "queued"}), "queued"),
        (event("response.completed", response={**RESPONSE, "output": []}), "no output"),
        (event("response.completed", response={**RESPONSE, "error": {}}), "tells an error"),
        (event("error", message="boom"), "tells an error"),
        (event("response.output_text.delta", delta="x"), "no terminal event"),
        (DONE, "the last event is response.created"),
        (b"event: response.completed\ndata: {\n\n", "form of one"),
    ],
)
def test_a_response_that_did_not_complete_is_discarded(last: bytes, why: str) -> None:
    created = event("response.created", response={})
    assert why in reason(record(created, last, surface=Surface.RESPONSES))


def response_of(item: dict[str, Any]) -> dict[str, Any]:
    return {**RESPONSE, "output": [{"type": "message", **item}]}


def plain_chat(**more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hello"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c1", "model": "m-1", "choices": [choice], "usage": USAGE, **more}


def test_a_plain_answer_is_recorded_byte_for_byte() -> None:
    body = json.dumps(plain_chat(), indent=2).encode()
    headers = ((b"openai-version", b"1"), (b"x-request-id", b"r"), (b"set-cookie", b"c"))

    recording = kept(
        record_plain(Surface.CHAT, 200, headers, body, max_bytes=10_000, num_choices=1)
    )

    assert recording.payload.body == body
    assert recording.payload.headers == ((b"openai-version", b"1"),)
    assert recording.usage == Usage(input_tokens=5, output_tokens=2)
    assert recording.finish_reasons == ("stop",)


@pytest.mark.parametrize(
    ("surface", "status", "body", "why"),
    [
        (Surface.CHAT, 500, plain_chat(), "status 500"),
        (Surface.CHAT, 302, plain_chat(), "status 302"),
        (Surface.CHAT, 200, plain_chat(choices=[]), "no choices"),
        (Surface.CHAT, 200, plain_chat(error={"message": "x"}), "tells an error"),
        (Surface.CHAT, 200, plain_chat(x="x" * 10_000), "larger than"),
        (Surface.CHAT, 200, [], "form of a completion"),
        (Surface.CHAT, 200, plain_chat(choices=[{"message": {}}]), "no finish reason"),
        (Surface.CHAT, 200, plain_chat(choices=[{"finish_reason": "stop"}]), "says nothing"),
        (Surface.CHAT, 200, plain_chat(choices=[{"message": None}]), "says nothing"),
        (Surface.CHAT, 200, plain_chat(choices=[{"message": {"tool_calls": [1]}}]), "the form of"),
        (Surface.CHAT, 200, plain_chat(choices=2 * plain_chat()["choices"]), "comes twice"),
        (Surface.CHAT, 206, plain_chat(), "status 206"),
        (Surface.COMPLETIONS, 200, plain_chat(), "says nothing"),
        (Surface.CHAT, 200, plain_chat(x="\ud800"), "not valid JSON"),
        (Surface.EMBEDDINGS, 200, {"data": []}, "no embeddings"),
        (Surface.EMBEDDINGS, 200, {"data": 1}, "form of embeddings"),
        (Surface.RESPONSES, 200, {**RESPONSE, "status": "in_progress"}, "in_progress"),
        (Surface.RESPONSES, 200, response_of({"content": "x"}), "form of a response"),
        (Surface.RESPONSES, 200, response_of({"summary": ["x"]}), "form of a response"),
        (Surface.RESPONSES, 200, response_of({"content": {"a": 1}}), "form of a response"),
        (Surface.RESPONSES, 200, response_of({"content": [{"annotations": 1}]}), "form of a"),
    ],
)
def test_a_plain_answer_that_is_not_whole_is_discarded(
    surface: Surface, status: int, body: object, why: str
) -> None:
    data = json.dumps(body).encode()
    assert why in reason(record_plain(surface, status, (), data, max_bytes=9_000, num_choices=1))


def test_embeddings_are_recorded_with_their_usage() -> None:
    body = msgspec.json.encode(
        {"data": [{"embedding": "AAAA"}], "model": "e", "usage": {"prompt_tokens": 3}}
    )
    recording = kept(
        record_plain(Surface.EMBEDDINGS, 200, (), body, max_bytes=10_000, num_choices=1)
    )
    assert recording.usage == Usage(input_tokens=3)
    assert recording.model == "e"
