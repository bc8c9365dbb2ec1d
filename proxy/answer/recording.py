"""Watching an answer go by, and deciding at its end whether it may be kept."""

from typing import assert_never

import msgspec

from proxy.answer.grammar import (
    DONE_FRAME,
    READ_FAULTS,
    Answer,
    Bill,
    Discarded,
    Frame,
    FrameKind,
    Grammar,
    is_readable,
    is_set,
    read_bill,
    read_usage,
)
from proxy.answer.grammar_chunks import ChunkGrammar, judge_chunks_body
from proxy.answer.grammar_events import EventGrammar, judge_response
from proxy.answer.payload import Payload
from proxy.answer.sse import EventParser, frame_data
from proxy.call import Headers, Surface, Usage
from proxy.request.headers import recorded


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer, which may be stored as far as the answer itself is concerned."""

    payload: Payload
    usage: Usage
    """Zeros when the upstream did not count; `payload.usage_known` tells."""
    model: str
    finish_reasons: tuple[str, ...]

    @property
    def bill(self) -> Bill:
        """What it cost."""
        return Bill(counted=self.usage if self.payload.usage_known else None, model=self.model)

    @property
    def has_tool_calls(self) -> bool:
        """Such answers are for the exact tier only."""
        return self.payload.has_tool_calls


Recording = Complete | Discarded


class StreamRecorder:
    """Parses a stream once for both: the frames to pass on, and the recording at its end.

    Over `max_bytes` of frames the recording is given up, and frames flow on.
    """

    __slots__ = ("_ended", "_failure", "_grammar", "_headers", "_kept", "_kept_bytes", "_max_bytes",
                 "_parser", "_surface", "_usage_frame", "done", "told_error")  # fmt: skip

    def __init__(
        self,
        surface: Surface,
        status: int,
        headers: Headers,
        *,
        max_bytes: int,
        num_choices: int | None,
    ) -> None:
        """`num_choices`: as `proxy.request.choices` gives it."""
        self._surface = surface
        self._headers = headers
        self._max_bytes = max_bytes
        self._parser = EventParser()
        self._grammar: Grammar = (
            EventGrammar()
            if surface is Surface.RESPONSES
            else ChunkGrammar(num_choices=num_choices)
        )
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._usage_frame = b""
        self._failure = _status_fault(status)
        self._ended = False
        self.done = False
        """The terminal event has come."""
        self.told_error = False
        """An error event has come."""

    @property
    def keeps(self) -> bool:
        """Nothing has come yet that forbids to keep the answer."""
        return not self._failure

    @property
    def usage(self) -> Usage | None:
        """What the upstream has counted so far; servers that count along send growing numbers."""
        return self._grammar.usage

    def feed(self, data: bytes) -> list[Frame]:
        """Frames that became whole with `data`; whatever follows the terminal event is dropped."""
        frames: list[Frame] = []
        for whole in self._parser.feed(data):
            if self.done:
                break
            frames += self._take(whole)
        return frames

    def end(self) -> list[Frame]:
        """Frames still to pass on when the body has ended cleanly. Idempotent.

        Some servers leave out the blank line after `[DONE]`: only that event is whole without it.
        """
        if self._ended:
            return []
        self._ended = True
        frames: list[Frame] = []
        was_pending = self._parser.pending
        rest = self._parser.flush()
        if self.done:
            return []
        if len(rest) == 1 and _in_one_spelling(rest[0]) == DONE_FRAME:
            frames += self._take(DONE_FRAME)
        elif was_pending:
            self._fail("the stream was cut in the middle of an event")
        frames += map(self._note, self._grammar.end())
        return frames

    def finish(self) -> Recording:
        """The verdict over all that was fed. Calls `end` where the caller has not."""
        self.end()
        if not self._failure and not self.done:
            self._fail("the stream has no terminal event")
        answer = (
            Discarded(reason=self._failure) if self._failure else self._grammar.judge(self._kept)
        )
        if isinstance(answer, Discarded):
            return Discarded(reason=answer.reason, bill=Bill(counted=self._grammar.usage))
        return _complete(
            answer,
            surface=self._surface,
            headers=self._headers,
            frames=b"".join(self._kept),
            usage_frame=self._usage_frame,
        )

    def _take(self, whole: bytes) -> tuple[Frame, ...]:
        if not whole.startswith(b"data: {"):
            whole = _in_one_spelling(whole)
        frames = self._grammar.read(whole)
        for frame in frames:
            if frame.kind is FrameKind.CONTENT:  # nearly all
                self._keep(frame.bare)
            else:
                self._note(frame)
        return frames

    def _note(self, frame: Frame) -> Frame:
        match frame.kind:
            case FrameKind.CONTENT:
                self._keep(frame.bare)
            case FrameKind.USAGE:
                self._usage_frame = frame.data
            case FrameKind.ERROR:
                self.told_error = True
                self._fail("the stream tells an error")
            case FrameKind.DONE:
                self.done = True
                if frame.data != DONE_FRAME:
                    self._keep(frame.data)
            case FrameKind.COMMENT:
                pass
        return frame

    def _keep(self, data: bytes) -> None:
        if self._failure:
            return
        self._kept_bytes += len(data)
        if self._kept_bytes > self._max_bytes:
            self._fail(f"larger than {self._max_bytes} bytes")
        else:
            self._kept.append(data)

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._kept.clear()


def record_plain(
    surface: Surface,
    status: int,
    headers: Headers,
    body: bytes,
    *,
    max_bytes: int,
    num_choices: int | None,
) -> Recording:
    """The verdict over a whole plain answer. `num_choices`: as `proxy.request.choices` gives it."""
    fault = _status_fault(status)
    if len(body) > max_bytes:
        fault = fault or f"larger than {max_bytes} bytes"
    answer = (
        Discarded(reason=fault) if fault else _judge_plain(surface, body, num_choices=num_choices)
    )
    if isinstance(answer, Discarded):
        return Discarded(reason=answer.reason, bill=read_bill(body))
    return _complete(answer, surface=surface, headers=headers, body=body)


class _Embeddings(msgspec.Struct):
    data: list[msgspec.Raw] = []
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


def _status_fault(status: int) -> str:
    """Other successes are of a part, of nothing yet, or of another's making; replays say 200."""
    return "" if status == 200 else f"status {status}"


def _in_one_spelling(frame: bytes) -> bytes:
    """The terminal event, also of a server that puts a blank or a name beside it."""
    return DONE_FRAME if frame_data(frame).strip() == b"[DONE]" else frame


def _judge_plain(surface: Surface, body: bytes, *, num_choices: int | None) -> Answer | Discarded:
    if surface is not Surface.EMBEDDINGS and not is_readable(body):
        return Discarded(reason="the body is not valid JSON")
    match surface:
        case Surface.CHAT | Surface.COMPLETIONS:
            return judge_chunks_body(surface, body, num_choices=num_choices)
        case Surface.RESPONSES:
            return judge_response(body)
        case Surface.EMBEDDINGS:
            return _judge_embeddings(body)
        case _:
            assert_never(surface)


def _judge_embeddings(body: bytes) -> Answer | Discarded:
    try:
        view = _EMBEDDINGS.decode(body)
    except READ_FAULTS:
        return Discarded(reason="the body does not have the form of embeddings")
    if is_set(view.error):
        return Discarded(reason="the body tells an error")
    if not view.data:
        return Discarded(reason="no embeddings")
    return Answer(usage=read_usage(view.usage), model=view.model or "", finish_reasons=())


def _complete(
    answer: Answer,
    *,
    surface: Surface,
    headers: Headers,
    body: bytes = b"",
    frames: bytes = b"",
    usage_frame: bytes = b"",
) -> Complete:
    usage = answer.usage or Usage()
    payload = Payload(
        surface=surface,
        headers=recorded(headers),
        body=body,
        frames=frames,
        usage_frame=usage_frame,
        usage=usage,
        usage_known=answer.usage is not None,
        model=answer.model,
        has_tool_calls=answer.has_tool_calls,
    )
    return Complete(
        payload=payload, usage=usage, model=answer.model, finish_reasons=answer.finish_reasons
    )


_EMBEDDINGS = msgspec.json.Decoder(_Embeddings)
