"""What the grammars of the surfaces have in common: frames, verdicts, and how usage is read."""

import enum
from typing import Protocol

import msgspec

from proxy.call import Usage

DONE_FRAME = b"data: [DONE]\n\n"

COMPLETE_REASONS = frozenset(
    {"stop", "length", "tool_calls", "function_call", "eos_token", "stop_sequence"}
)
"""Finish reasons of a whole answer. All others (`content_filter`, `error`, `abort`, names that we
do not know) mean that something ended it, or may have."""


READ_FAULTS = (msgspec.MsgspecError, RecursionError)
"""What decoding JSON of others raises."""


class FrameKind(enum.Enum):
    """What a frame is to those who pass it on."""

    CONTENT = "content"
    USAGE = "usage"
    """The chunk with the usage, only for clients that asked. Comes once, right before DONE."""
    DONE = "done"
    """The terminal event: `[DONE]`, or `response.completed|failed|incomplete`."""
    COMMENT = "comment"
    ERROR = "error"
    """An error event: the answer is broken, whatever comes after it."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One server-sent event in normal form."""

    kind: FrameKind
    data: bytes
    """For a client that asked for usage."""
    bare: bytes
    """For one that did not: without `"usage": null`; empty for the usage chunk itself."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a grammar found in a whole answer."""

    usage: Usage | None
    """None: the upstream did not count. Zeros are its own."""
    model: str
    finish_reasons: tuple[str, ...]
    """By choice; empty on surfaces without choices."""
    has_tool_calls: bool = False


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer cost, kept or not."""

    counted: Usage | None = None
    """None: the upstream did not count, or nobody could read it. Zeros are its own."""
    model: str = ""
    """As the answer names it, where that was read."""


class Discarded(msgspec.Struct, frozen=True, kw_only=True):
    """Not to be stored, and why."""

    reason: str
    bill: Bill = Bill()


class Grammar(Protocol):
    """How one kind of stream is read. Holds the state of one stream."""

    @property
    def usage(self) -> Usage | None:
        """What the upstream counted, as far as it has said so."""
        ...

    def read(self, frame: bytes) -> tuple[Frame, ...]:
        """The frames to pass on in place of `frame`; usually itself."""
        ...

    def end(self) -> tuple[Frame, ...]:
        """The frames that were held back, when the body has ended."""
        ...

    def judge(self, frames: list[bytes]) -> Answer | Discarded:
        """Is it a whole answer? `frames` are the content frames, and the terminal event where it
        carries content."""
        ...


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _UsageView(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    # Where it stands with DeepSeek, Anthropic (also as Bedrock passes it on) and Bedrock's own API.
    prompt_cache_hit_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_read: int | None = msgspec.field(name="cacheReadInputTokens", default=None)


class _BillView(msgspec.Struct):
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw()


def read_bill(body: bytes) -> Bill:
    """Out of the plain answer of any surface."""
    try:
        view = _BILL.decode(body)
    except READ_FAULTS:
        return Bill()
    counted = read_usage(view.usage) if view.usage else None
    return Bill(counted=counted, model=view.model or "")


def read_usage(raw: bytes | msgspec.Raw) -> Usage | None:
    """Usage out of its JSON, in either API's words; None for null, nothing, or another shape."""
    try:
        view = _USAGE.decode(raw)
    except READ_FAULTS:
        return None
    if view is None:
        return None
    details = view.prompt_tokens_details or view.input_tokens_details or _Details()
    return Usage(
        input_tokens=view.prompt_tokens or view.input_tokens or 0,
        output_tokens=view.completion_tokens or view.output_tokens or 0,
        cached_tokens=details.cached_tokens
        or view.prompt_cache_hit_tokens
        or view.cache_read_input_tokens
        or view.cache_read
        or 0,
    )


def is_set(raw: msgspec.Raw) -> bool:
    """The member was there and is not null."""
    return bytes(raw) not in (b"", b"null")


def is_readable(json: bytes) -> bool:
    """All of it can be decoded: also strings and numbers that no view looks at (half a surrogate
    pair, a number without bounds), so that a replay in another form cannot fail."""
    try:
        _ANY.decode(json)
    except READ_FAULTS:
        return False
    return True


def as_written(number: str) -> msgspec.Raw:
    """msgspec `float_hook`: a fraction keeps the digits that the upstream wrote."""
    return msgspec.Raw(number.encode())


_ANY = msgspec.json.Decoder()
_BILL = msgspec.json.Decoder(_BillView)
_USAGE = msgspec.json.Decoder(_UsageView | None)
