"""The events of a Responses stream for a plain response, in the order of OpenAI's API reference
("Streaming events" of the Responses API); and the plain response out of recorded events."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from proxy.answer.grammar import as_written
from proxy.answer.sse import frame_data

Json = dict[str, Any]


class _Call(NamedTuple):
    """How the model's words to a tool are streamed: the events' stem and the item's member."""

    event: str
    member: str


_CALLS = {
    "function_call": _Call("function_call_arguments", "arguments"),
    "custom_tool_call": _Call("custom_tool_call_input", "input"),
}


def response(frames: bytes) -> bytes:
    """The plain response, byte for byte, out of the terminal event of joined frames."""
    last = frames[:-2].rpartition(b"\n\n")[2] + b"\n\n"
    return bytes(_TERMINAL.decode(frame_data(last)).response)


def events(body: bytes) -> bytes:
    """Joined frames of a plain response, `response.completed` last, numbered from 0."""
    plain: Json = _OBJECT.decode(body)
    begun = {**plain, "status": "in_progress", "output": [], "usage": None}
    said: list[Json] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for output_index, item in enumerate(plain.get("output", ())):
        said += _of_item(item, output_index)
    said.append({"type": "response.completed", "response": msgspec.Raw(_on_one_line(body))})
    return b"".join(
        _frame({**event, "sequence_number": number}) for number, event in enumerate(said)
    )


def _of_item(item: Json, output_index: int) -> Iterator[Json]:
    at = {"output_index": output_index}
    begun = {**item, **{name: [] for name in ("content", "summary") if item.get(name)}}
    if "status" in item:
        begun["status"] = "in_progress"
    call = _CALLS.get(str(item.get("type")))
    if call is not None:
        begun[call.member] = ""
    yield {"type": "response.output_item.added", **at, "item": begun}
    at["item_id"] = item.get("id", "")
    for index, part in enumerate(item.get("summary") or ()):
        yield from _of_summary(part, {**at, "summary_index": index})
    for index, part in enumerate(item.get("content") or ()):
        yield from _of_part(part, {**at, "content_index": index})
    if call is not None:
        said = item.get(call.member, "")
        yield {"type": f"response.{call.event}.delta", **at, "delta": said}
        yield {"type": f"response.{call.event}.done", **at, call.member: said}
    yield {"type": "response.output_item.done", "output_index": output_index, "item": item}


def _of_summary(part: Json, at: Json) -> Iterator[Json]:
    kind = "response.reasoning_summary"
    text = part.get("text", "")
    yield {"type": f"{kind}_part.added", **at, "part": {**part, "text": ""}}
    yield {"type": f"{kind}_text.delta", **at, "delta": text}
    yield {"type": f"{kind}_text.done", **at, "text": text}
    yield {"type": f"{kind}_part.done", **at, "part": part}


def _of_part(part: Json, at: Json) -> Iterator[Json]:
    match part.get("type"):
        case "output_text":
            empty = {**part, "text": "", "annotations": []}
            if part.get("logprobs"):
                empty["logprobs"] = []
            said = _of_text(part, at)
        case "refusal":
            empty = {**part, "refusal": ""}
            said = _of_string("response.refusal", "refusal", part, at)
        case "reasoning_text":
            empty = {**part, "text": ""}
            said = _of_string("response.reasoning_text", "text", part, at)
        case _:
            empty = part
            said = iter(())
    yield {"type": "response.content_part.added", **at, "part": empty}
    yield from said
    yield {"type": "response.content_part.done", **at, "part": part}


def _of_text(part: Json, at: Json) -> Iterator[Json]:
    kind = "response.output_text"
    text = part.get("text", "")
    logprobs = part.get("logprobs") or []
    yield {"type": f"{kind}.delta", **at, "delta": text, "logprobs": logprobs}
    for index, annotation in enumerate(part.get("annotations") or ()):
        yield {"type": f"{kind}.annotation.added", **at, "annotation_index": index,
               "annotation": annotation}  # fmt: skip
    yield {"type": f"{kind}.done", **at, "text": text, "logprobs": logprobs}


def _of_string(kind: str, name: str, part: Json, at: Json) -> Iterator[Json]:
    text = part.get(name, "")
    yield {"type": f"{kind}.delta", **at, "delta": text}
    yield {"type": f"{kind}.done", **at, name: text}


def _on_one_line(body: bytes) -> bytes:
    """As it is; a pretty-printed body without its white space, which would break the frame."""
    return msgspec.json.format(body, indent=-1) if b"\n" in body or b"\r" in body else body


def _frame(event: Json) -> bytes:
    kind: str = event["type"]
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(event))


class _Terminal(msgspec.Struct):
    response: msgspec.Raw


_TERMINAL = msgspec.json.Decoder(_Terminal)
_OBJECT = msgspec.json.Decoder(dict[str, Any], float_hook=as_written)
