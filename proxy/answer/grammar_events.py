"""The grammar of the Responses API: typed events, the last of which carries the whole answer."""

import msgspec

from proxy.answer.grammar import (
    DONE_FRAME,
    READ_FAULTS,
    Answer,
    Discarded,
    Frame,
    FrameKind,
    is_set,
    read_usage,
)
from proxy.answer.sse import frame_data, frame_event
from proxy.call import Usage

COMPLETED = b"response.completed"

_TERMINAL = frozenset({COMPLETED, b"response.failed", b"response.incomplete"})


class EventGrammar:
    """Nothing is held back: usage stands in the terminal event, for every client."""

    __slots__ = ("_usage",)

    def __init__(self) -> None:
        self._usage: Usage | None = None

    @property
    def usage(self) -> Usage | None:
        """Known once the terminal event has come."""
        return self._usage

    def read(self, frame: bytes) -> tuple[Frame, ...]:
        """Decodes only frames without an `event` line, and the terminal one."""
        kind = self._kind(frame)
        return (Frame(kind=kind, data=frame, bare=frame),)

    def end(self) -> tuple[Frame, ...]:
        """Nothing was held back."""
        return ()

    def judge(self, frames: list[bytes]) -> Answer | Discarded:
        """Whole when its last event is `response.completed` and the response in it is."""
        try:
            events = _TYPES.decode(b"[" + b",".join(map(frame_data, frames)) + b"]")
        except READ_FAULTS:
            return Discarded(reason="an event does not have the form of one")
        if len(events) != len(frames):
            return Discarded(reason="an event does not have the form of one")
        if not events or events[-1].type.encode() != COMPLETED:
            last = events[-1].type if events else "nothing"
            return Discarded(reason=f"the last event is {last}")
        return judge_response(_EVENT.decode(frame_data(frames[-1])).response)

    def _kind(self, frame: bytes) -> FrameKind:
        if frame == DONE_FRAME:
            return FrameKind.DONE
        if frame.startswith(b":"):
            return FrameKind.COMMENT
        event = frame_event(frame) or _type_of(frame)
        if event == b"error":
            return FrameKind.ERROR
        if event not in _TERMINAL:
            return FrameKind.CONTENT
        self._usage = _usage_of(frame)
        return FrameKind.DONE


def judge_response(response: bytes | msgspec.Raw) -> Answer | Discarded:
    """A response object, plain or out of its terminal event."""
    try:
        view = _RESPONSE.decode(response)
    except READ_FAULTS:
        return Discarded(reason="the body does not have the form of a response")
    if is_set(view.error):
        return Discarded(reason="the response tells an error")
    if view.status != "completed":
        return Discarded(reason=f"the response is {view.status or 'without a status'}")
    if not view.output:
        return Discarded(reason="no output")
    if any(item.status not in (None, "completed") for item in view.output):
        return Discarded(reason="an item of the output is not completed")
    return Answer(
        usage=read_usage(view.usage),
        model=view.model or "",
        finish_reasons=(),
        has_tool_calls=any(item.type.endswith("_call") for item in view.output),
    )


class _Typed(msgspec.Struct):
    type: str


class _Part(msgspec.Struct):
    annotations: list[msgspec.Raw] | None = None


class _Item(msgspec.Struct):
    """`content` and `summary` in the only form of which events can be made."""

    type: str
    status: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    model: str | None = None
    output: list[_Item] = []
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Event(msgspec.Struct):
    response: msgspec.Raw = msgspec.Raw()


def _type_of(frame: bytes) -> bytes:
    try:
        return _TYPE.decode(frame_data(frame)).type.encode()
    except READ_FAULTS:
        return b"error" if b'"error"' in frame else b""


def _usage_of(frame: bytes) -> Usage | None:
    try:
        return read_usage(_RESPONSE.decode(_EVENT.decode(frame_data(frame)).response).usage)
    except READ_FAULTS:
        return None


_TYPE = msgspec.json.Decoder(_Typed)
_TYPES = msgspec.json.Decoder(list[_Typed])
_EVENT = msgspec.json.Decoder(_Event)
_RESPONSE = msgspec.json.Decoder(_Response)
