"""The Responses API as the real one gives it, plain and as its events."""

import json
from collections.abc import Iterator

import chats

Json = dict
USAGE = {
    "input_tokens": 37,
    "input_tokens_details": {"cached_tokens": 16},
    "output_tokens": 11,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 48,
}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "**Thinking** it over"}],
    "encrypted_content": "gAAAAA" + "b" * 400,
}
COMMAND = {"command": ["bash", "-lc", "ls"], "workdir": "/tmp"}


def answer(asked: Json) -> Json:
    """The plain form."""
    return _response(asked, status="completed", output=_items(asked), usage=USAGE)


def stream(asked: Json) -> Iterator[bytes]:
    """The events, each with its name and number."""
    number = 0

    def event(kind: str, **more: object) -> bytes:
        nonlocal number
        data = {"type": kind, "sequence_number": number, **more}
        number += 1
        return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()

    begun = _response(asked, status="in_progress", output=[], usage=None)
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(_items(asked)):
        for kind, more in _item_events(item):
            if kind.endswith("text.done"):
                yield from chats.interruption(chats.kind_of(asked))
            yield event(kind, output_index=index, **more)
    if chats.kind_of(asked) == "failing":
        told = {"code": "server_error", "message": "The model failed."}
        failed = _response(asked, status="failed", output=[], usage=None) | {"error": told}
        yield event("response.failed", response=failed)
        return
    yield event("response.completed", response=answer(asked))


def _items(asked: Json) -> list[Json]:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": chats.TEXT}
    message = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
               "content": [part]}  # fmt: skip
    match chats.kind_of(asked):
        case "tools" if asked.get("tools"):
            called = {"id": "fc_1", "type": "function_call", "status": "completed",
                      "call_id": "call_1", "name": asked["tools"][0]["name"],
                      "arguments": json.dumps(COMMAND)}  # fmt: skip
            return [REASONING, called, {**called, "id": "fc_2", "call_id": "call_2"}]
        case "structured":
            part["text"] = json.dumps(chats.ROBOT)
        case "refusal":
            message["content"] = [{"type": "refusal", "refusal": "I cannot help with that."}]
    return [message]


def _item_events(item: Json) -> Iterator[tuple[str, Json]]:
    """What is said of one item, without its place in the output."""
    here = {"item_id": item["id"]}
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    for name in ("content", "summary"):
        if name in item:
            begun[name] = []
    yield "response.output_item.added", {"item": begun | _no_arguments(item)}
    for index, part in enumerate(item.get("summary", ())):
        at = {**here, "summary_index": index}
        empty = {**part, "text": ""}
        yield "response.reasoning_summary_part.added", {**at, "part": empty}
        yield from _text("response.reasoning_summary_text", part["text"], "text", at)
        yield "response.reasoning_summary_part.done", {**at, "part": part}
    for index, part in enumerate(item.get("content", ())):
        at = {**here, "content_index": index}
        kind = part["type"]
        name = "text" if kind == "output_text" else "refusal"
        yield "response.content_part.added", {**at, "part": {**part, name: ""}}
        more = {"logprobs": []} if name == "text" else {}
        yield from _text(f"response.{kind}", part[name], name, {**at, **more})
        yield "response.content_part.done", {**at, "part": part}
    if "arguments" in item:
        kind = "response.function_call_arguments"
        yield from _text(kind, item["arguments"], "arguments", here)
    yield "response.output_item.done", {"item": item}


def _text(kind: str, text: str, name: str, at: Json) -> Iterator[tuple[str, Json]]:
    middle = len(text) // 2
    yield f"{kind}.delta", {**at, "delta": text[:middle]}
    yield f"{kind}.delta", {**at, "delta": text[middle:]}
    yield f"{kind}.done", {**at, name: text}


def _no_arguments(item: Json) -> Json:
    return {"arguments": ""} if "arguments" in item else {}


def _response(asked: Json, *, status: str, output: list[Json], usage: Json | None) -> Json:
    return {
        "id": "resp_67ccd2bed1ec8190b14f964abc054267",
        "object": "response",
        "created_at": 1741476542,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "max_output_tokens": None,
        "model": asked["model"],
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": asked.get("reasoning") or {"effort": None, "summary": None},
        "store": asked.get("store", True),
        "temperature": 1.0,
        "text": asked.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": asked.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage,
        "metadata": {},
    }
