"""Answers of the bundled engine in OpenAI's wire format. Pure: text and numbers in, JSON and
server-sent events out."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

DONE = b"data: [DONE]\n\n"

Json = dict[str, Any]


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class TokenDetail(Token, frozen=True, kw_only=True):
    """One item of `logprobs.content`."""

    top_logprobs: list[Token]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A whole choice."""

    index: int
    text: str
    finish_reason: str
    logprobs: Sequence[TokenDetail] | None


def usage_of(*, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> Json:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def data_frame(chunk: Json) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


class AnswerForm(Protocol):
    """One answer's envelope, of one stream or one plain body: it may hold what is still to come
    of each choice. Chunks of a stream share id, time and model."""

    closing: bytes
    """What a stream says after its last chunk."""

    def frame(self, chunk: Json) -> bytes:
        """A chunk as a server-sent event."""
        ...

    def begin(self, index: int) -> list[Json]:
        """Chunks before a choice's first text."""
        ...

    def pieces(
        self, index: int, text: str, logprobs: Sequence[TokenDetail] | None
    ) -> list[Json]: ...

    def end(self, index: int, finish_reason: str) -> list[Json]:
        """The last chunks of a choice."""
        ...

    def usage(self, usage: Json) -> Json:
        """The last chunk of a stream, sent as if `include_usage` were asked of it; the proxy takes
        it out for clients that did not. Before it, usage is null."""
        ...

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        """The answer that is no stream."""
        ...
