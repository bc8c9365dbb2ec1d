"""The chunks of a stream for a plain completion, which `proxy.answer.assembly` adds up again.

First the role, then what the message holds beside its text (reasoning, refusal, annotations,
fields that we do not know), the text in one piece, each tool call, and the finish reason.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.answer.grammar import as_written
from proxy.call import Surface

Json = dict[str, Any]

_SHARED = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
"""Top members that every chunk carries; others stand on the first one only."""


class Chunks(msgspec.Struct, frozen=True, kw_only=True):
    """Frames in the form in which `Payload` keeps those of a recorded stream."""

    frames: bytes
    usage_frame: bytes


def chunks(body: bytes, *, surface: Surface) -> Chunks:
    """Frames of a plain chat or legacy completion."""
    plain: Json = _OBJECT.decode(body)
    choices = plain.pop("choices")
    usage = plain.pop("usage", None)
    is_chat = surface is Surface.CHAT
    plain["object"] = "chat.completion.chunk" if is_chat else "text_completion"
    shared = {name: plain[name] for name in _SHARED if name in plain}
    pieces = [piece for choice in choices for piece in (_chat if is_chat else _text)(choice)]
    frames = [_frame({**(shared if n else plain), "choices": [p]}) for n, p in enumerate(pieces)]
    usage_frame = b"" if usage is None else _frame({**shared, "choices": [], "usage": usage})
    return Chunks(frames=b"".join(frames), usage_frame=usage_frame)


def _chat(choice: Json) -> Iterator[Json]:
    index = choice.pop("index", 0)
    message: Json = choice.pop("message")
    finish_reason = choice.pop("finish_reason", None)
    content = message.pop("content", None)
    calls = message.pop("tool_calls", None) or []
    role = message.pop("role", "assistant")
    said = {name: value for name, value in message.items() if value not in (None, [], "")}
    unsaid = {name: value for name, value in message.items() if name not in said}
    yield _piece(index, {"role": role, "content": content and "", **unsaid})
    if said:
        yield _piece(index, said)
    if content:
        yield _piece(index, {"content": content}, logprobs=choice.pop("logprobs", None))
    for number, call in enumerate(calls):
        yield _piece(index, {"tool_calls": [{"index": number, **call}]})
    yield {**choice, **_piece(index, {}, logprobs=choice.get("logprobs")),
           "finish_reason": finish_reason}  # fmt: skip


def _text(choice: Json) -> Iterator[Json]:
    index = choice.pop("index", 0)
    text = choice.pop("text", "")
    logprobs = choice.pop("logprobs", None)
    finish_reason = choice.pop("finish_reason", None)
    yield {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}
    yield {**choice, "index": index, "text": "", "logprobs": None, "finish_reason": finish_reason}


def _piece(index: int, delta: Json, *, logprobs: Json | None = None) -> Json:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}


def _frame(chunk: Json) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


_OBJECT = msgspec.json.Decoder(dict[str, Any], float_hook=as_written)
