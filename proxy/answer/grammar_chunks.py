"""The grammar of chat and legacy completions: chunks with choices, then `[DONE]`."""

import re

import msgspec

from proxy.answer.grammar import (
    COMPLETE_REASONS,
    DONE_FRAME,
    READ_FAULTS,
    Answer,
    Discarded,
    Frame,
    FrameKind,
    is_readable,
    is_set,
    read_usage,
)
from proxy.answer.sse import frame_data, frame_event
from proxy.call import Usage

_COMPACT_NULL_USAGE = b',"usage":null'
_NULL_USAGE = re.compile(rb',\s*"usage"\s*:\s*null|"usage"\s*:\s*null\s*,')
"""Exact on valid JSON: inside a string every quote is escaped, so `"usage"` followed by a colon can
only be a member's name."""


class ChunkGrammar:
    """Usage is held back until the end and passed on as a chunk of its own, whichever chunks it
    came with; so one stream serves clients with and without it."""

    __slots__ = ("_usage", "_usage_frame", "_usage_sent")

    def __init__(self) -> None:
        self._usage: Usage | None = None
        self._usage_frame = b""
        self._usage_sent = False

    @property
    def usage(self) -> Usage | None:
        """The last that came: servers that count along send growing numbers."""
        return self._usage

    def read(self, frame: bytes) -> tuple[Frame, ...]:
        """Cheap tests of bytes for the usual chunks; only odd ones are decoded."""
        bare = frame
        if b'"usage"' in frame:
            bare = frame.replace(_COMPACT_NULL_USAGE, b"")
        if frame.startswith(b"data: {") and b'"usage"' not in bare and b'"error"' not in bare:
            return (Frame(kind=FrameKind.CONTENT, data=frame, bare=bare),)
        return self._read_odd(frame)

    def end(self) -> tuple[Frame, ...]:
        """The usage chunk, unless it went out before `[DONE]`."""
        if not self._usage_frame or self._usage_sent:
            return ()
        self._usage_sent = True
        return (Frame(kind=FrameKind.USAGE, data=self._usage_frame, bare=b""),)

    def judge(self, frames: list[bytes]) -> Answer | Discarded:
        """Whole when every choice that was seen has a good finish reason."""
        joined = b"[" + b",".join(map(frame_data, frames)) + b"]"
        try:
            chunks = _CHUNKS.decode(joined)
        except READ_FAULTS:
            return Discarded(reason="a chunk does not have the form of one")
        if len(chunks) != len(frames) or not is_readable(joined):
            return Discarded(reason="a chunk does not have the form of one")
        reasons: dict[int, str | None] = {}
        model = ""
        has_tool_calls = False
        for chunk in chunks:
            model = model or chunk.model or ""
            for choice in chunk.choices or ():
                reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
                has_tool_calls = has_tool_calls or choice.calls_tools
        return judged(reasons, usage=self._usage, model=model, has_tool_calls=has_tool_calls)

    def _read_odd(self, frame: bytes) -> tuple[Frame, ...]:
        if frame == DONE_FRAME:
            return (*self.end(), Frame(kind=FrameKind.DONE, data=frame, bare=frame))
        if frame.startswith(b":"):
            return (Frame(kind=FrameKind.COMMENT, data=frame, bare=frame),)
        members = _members(frame)
        if frame_event(frame) == b"error" or _tells_error(members):
            return (Frame(kind=FrameKind.ERROR, data=frame, bare=frame),)
        usage = read_usage(members.get("usage", b"null"))
        if usage is None:
            bare = _NULL_USAGE.sub(b"", frame)
            return (Frame(kind=FrameKind.CONTENT, data=frame, bare=bare),)
        self._usage = usage
        if bytes(members.get("choices", b"[]")) in (b"[]", b"null"):
            self._usage_frame = frame
            return ()
        content = _frame({**members, "usage": msgspec.Raw(b"null")})
        bare = _frame({name: raw for name, raw in members.items() if name != "usage"})
        self._usage_frame = _frame({**members, "choices": msgspec.Raw(b"[]")})
        return (Frame(kind=FrameKind.CONTENT, data=content, bare=bare),)


def judge_chunks_body(body: bytes) -> Answer | Discarded:
    """The plain form of the same: a chat or a legacy completion."""
    try:
        plain = _PLAIN.decode(body)
    except READ_FAULTS:
        return Discarded(reason="the body does not have the form of a completion")
    if is_set(plain.error):
        return Discarded(reason="the body tells an error")
    reasons = {choice.index: choice.finish_reason for choice in plain.choices}
    return judged(
        reasons,
        usage=read_usage(plain.usage),
        model=plain.model or "",
        has_tool_calls=any(choice.calls_tools for choice in plain.choices),
    )


def judged(
    reasons: dict[int, str | None], *, usage: Usage | None, model: str, has_tool_calls: bool
) -> Answer | Discarded:
    """The verdict by the finish reasons of all choices."""
    if not reasons:
        return Discarded(reason="no choices")
    finished: list[str] = []
    for index in sorted(reasons):
        reason = reasons[index]
        if reason is None:
            return Discarded(reason=f"choice {index} has no finish reason")
        if reason not in COMPLETE_REASONS:
            return Discarded(reason=f"choice {index} ended with {reason}")
        finished.append(reason)
    return Answer(
        usage=usage,
        model=model,
        finish_reasons=tuple(finished),
        has_tool_calls=has_tool_calls or "tool_calls" in finished or "function_call" in finished,
    )


class _Message(msgspec.Struct):
    """A delta, or the message of a plain answer."""

    tool_calls: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct):
    index: int = 0
    finish_reason: str | None = None
    delta: _Message | None = None
    message: _Message | None = None

    @property
    def calls_tools(self) -> bool:
        said = self.delta or self.message
        return said is not None and (bool(said.tool_calls) or is_set(said.function_call))


class _Chunk(msgspec.Struct):
    model: str | None = None
    choices: list[_Choice] | None = None


class _Plain(msgspec.Struct):
    choices: list[_Choice] = []
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


def _members(frame: bytes) -> dict[str, msgspec.Raw]:
    """Top members of a frame's JSON, each as it was written; empty when it is not an object."""
    try:
        return _MEMBERS.decode(frame_data(frame))
    except READ_FAULTS:
        return {}


def _tells_error(members: dict[str, msgspec.Raw]) -> bool:
    if is_set(members.get("error", msgspec.Raw())):
        return True
    return bytes(members.get("object", b"")) == b'"error"'  # vLLM's form


def _frame(members: dict[str, msgspec.Raw]) -> bytes:
    return b"data: " + msgspec.json.encode(members) + b"\n\n"


_CHUNKS = msgspec.json.Decoder(list[_Chunk])
_PLAIN = msgspec.json.Decoder(_Plain)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
