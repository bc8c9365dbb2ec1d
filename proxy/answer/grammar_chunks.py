"""The grammar of chat and legacy completions: chunks with choices, then `[DONE]`."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from proxy.answer.finishing import Finishing
from proxy.answer.grammar import (
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
from proxy.call import Surface, Usage

_NULL_USAGE = b',"usage":null'
_USAGE = b'"usage"'


class ChunkGrammar:
    """Usage is held back until the end and passed on as a chunk of its own, whichever chunks it
    came with; so one stream serves clients with and without it."""

    __slots__ = ("_num_choices", "_usage", "_usage_frame", "_usage_sent")

    def __init__(self, *, num_choices: int | None) -> None:
        """`num_choices`: how many were asked for; None where that cannot be told."""
        self._num_choices = num_choices
        self._usage: Usage | None = None
        self._usage_frame = b""
        self._usage_sent = False

    @property
    def usage(self) -> Usage | None:
        """The last that came: servers that count along send growing numbers."""
        return self._usage

    def read(self, frame: bytes) -> tuple[Frame, ...]:
        """Cheap tests of bytes for the usual chunks; only odd ones are decoded."""
        bare = _without_null_usage(frame) if _USAGE in frame else frame
        if frame.startswith(b"data: {") and _USAGE not in bare and b'"error"' not in bare:
            return (Frame(kind=FrameKind.CONTENT, data=frame, bare=bare),)
        return self._read_odd(frame)

    def end(self) -> tuple[Frame, ...]:
        """The usage chunk, unless it went out before `[DONE]`."""
        if not self._usage_frame or self._usage_sent:
            return ()
        self._usage_sent = True
        return (Frame(kind=FrameKind.USAGE, data=self._usage_frame, bare=b""),)

    def judge(self, frames: list[bytes]) -> Answer | Discarded:
        """Whole when every choice that was asked for has a good finish reason."""
        joined = b"[" + b",".join(map(frame_data, frames)) + b"]"
        try:
            chunks = _CHUNKS.decode(joined)
        except READ_FAULTS:
            return Discarded(reason="a chunk does not have the form of one")
        if len(chunks) != len(frames) or not is_readable(joined):
            return Discarded(reason="a chunk does not have the form of one")
        told = zip(chunks, frames, strict=True)
        if any(chunk.choices is None and not _members(frame) for chunk, frame in told):
            return Discarded(reason="a chunk is empty")
        choices = [choice for chunk in chunks for choice in chunk.choices or ()]
        if _has_no_delta(choices):
            return Discarded(reason="a chunk has a message and no delta")
        finishing = Finishing(self._num_choices)
        for chunk in chunks:
            finishing.add(chunk.choices or ())
        model = next((chunk.model for chunk in chunks if chunk.model), "")
        return finishing.judged(
            usage=self._usage, model=model, has_tool_calls=_calls_tools(choices)
        )

    def _read_odd(self, frame: bytes) -> tuple[Frame, ...]:
        if frame == DONE_FRAME:
            return (*self.end(), Frame(kind=FrameKind.DONE, data=frame, bare=frame))
        if frame.startswith(b":"):
            return (Frame(kind=FrameKind.COMMENT, data=frame, bare=frame),)
        members = _members(frame)
        if frame_event(frame) == b"error" or _tells_error(members):
            return (Frame(kind=FrameKind.ERROR, data=frame, bare=frame),)
        if "usage" not in members:
            return (Frame(kind=FrameKind.CONTENT, data=frame, bare=frame),)
        bare = _rewritten(frame, {n: raw for n, raw in members.items() if n != "usage"})
        if not is_set(members["usage"]):
            return (Frame(kind=FrameKind.CONTENT, data=frame, bare=bare),)
        self._usage = read_usage(members["usage"]) or self._usage
        if bytes(members.get("choices", b"[]")) in (b"[]", b"null"):
            self._usage_frame = frame
            return ()
        content = _rewritten(frame, {**members, "usage": msgspec.Raw(b"null")})
        self._usage_frame = _rewritten(frame, {**members, "choices": msgspec.Raw(b"[]")})
        return (Frame(kind=FrameKind.CONTENT, data=content, bare=bare),)


def judge_chunks_body(
    surface: Surface, body: bytes, *, num_choices: int | None
) -> Answer | Discarded:
    """The plain form of the same: a chat or a legacy completion."""
    try:
        plain = _PLAIN.decode(body)
    except READ_FAULTS:
        return Discarded(reason="the body does not have the form of a completion")
    if is_set(plain.error):
        return Discarded(reason="the body tells an error")
    said = [one.message if surface is Surface.CHAT else one.text for one in plain.choices]
    if None in said:
        return Discarded(reason="a choice says nothing")
    finishing = Finishing(num_choices)
    finishing.add(plain.choices)
    return finishing.judged(
        usage=read_usage(plain.usage),
        model=plain.model or "",
        has_tool_calls=_calls_tools(plain.choices),
    )


def _calls_tools(choices: Iterable["_Choice"]) -> bool:
    for choice in choices:
        for said in (choice.delta, choice.message):
            if said is not None and (said.tool_calls or is_set(said.function_call)):
                return True
    return False


def _has_no_delta(choices: Iterable["_Choice"]) -> bool:
    """A message stands where deltas do: it cannot be told whether it adds up or replaces."""
    return any(choice.message is not None and choice.delta is None for choice in choices)


class _Object(msgspec.Struct):
    """Any object."""


class _Message(msgspec.Struct):
    """A delta, or the message of a plain answer."""

    tool_calls: list[_Object] | None = None
    function_call: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct):
    index: int | UnsetType = UNSET
    finish_reason: str | None = None
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None


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


def _without_null_usage(frame: bytes) -> bytes:
    """The frame without `"usage":null`, where its bytes show that it is a member of the chunk and
    not of something within it: a single brace closes after it, the frame's own. Else as it is.

    Inside a string every quote is escaped, so what is found is a member's name on valid JSON.
    """
    head, found, tail = frame.rpartition(_NULL_USAGE)
    is_top = found and tail.endswith(b"}\n\n") and tail.count(b"}") == 1 and b"]" not in tail
    return head + tail if is_top else frame


def _rewritten(frame: bytes, members: dict[str, msgspec.Raw]) -> bytes:
    """The frame with these members instead of its own."""
    event = frame_event(frame)
    head = b"event: " + event + b"\n" if event else b""
    lines = msgspec.json.encode(members).replace(b"\n", b"\ndata: ")
    return head + b"data: " + lines + b"\n\n"


_CHUNKS = msgspec.json.Decoder(list[_Chunk])
_PLAIN = msgspec.json.Decoder(_Plain)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
