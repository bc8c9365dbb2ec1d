"""Answers of the bundled engine in OpenAI's wire format (API reference, "Chat Completions" and
"Completions"). Pure: text and numbers in, JSON and server-sent events out."""

import uuid
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


def event(chunk: Json) -> bytes:
    """A server-sent event."""
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


class AnswerForm(Protocol):
    """One answer's envelope. `chunks` of a stream share id, time and model."""

    def begin(self, index: int) -> list[Json]:
        """Chunks before a choice's first text."""
        ...

    def piece(self, index: int, text: str, logprobs: Sequence[TokenDetail] | None) -> Json: ...

    def end(self, index: int, finish_reason: str) -> Json: ...

    def usage(self, usage: Json) -> Json:
        """The chunk without choices that ends every stream, as if `include_usage` were asked of
        it; the proxy takes it out for clients that did not. Before it, usage is null."""
        ...

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        """The answer that is no stream."""
        ...


class ChatForm:
    """`chat.completion` and its chunks."""

    def __init__(self, *, model: str, created: int) -> None:
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": created, "model": model}

    def begin(self, index: int) -> list[Json]:
        return [self._chunk(index, {"role": "assistant", "content": ""}, None, None)]

    def piece(self, index: int, text: str, logprobs: Sequence[TokenDetail] | None) -> Json:
        return self._chunk(index, {"content": text}, logprobs, None)

    def end(self, index: int, finish_reason: str) -> Json:
        return self._chunk(index, {}, None, finish_reason)

    def usage(self, usage: Json) -> Json:
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        written = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": _chat_logprobs(choice.logprobs),
                "finish_reason": choice.finish_reason,
            }
            for choice in choices
        ]
        return {**self._head, "object": "chat.completion", "choices": written, "usage": usage}

    def _chunk(
        self,
        index: int,
        delta: Json,
        logprobs: Sequence[TokenDetail] | None,
        finish_reason: str | None,
    ) -> Json:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _chat_logprobs(logprobs),
            "finish_reason": finish_reason,
        }
        head = {**self._head, "object": "chat.completion.chunk"}
        return head | {"choices": [choice], "usage": None}


class CompletionForm:
    """`text_completion`, streamed under the same name."""

    def __init__(self, *, model: str, created: int) -> None:
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": created,
            "model": model,
        }

    def begin(self, index: int) -> list[Json]:
        return []

    def piece(self, index: int, text: str, logprobs: Sequence[TokenDetail] | None) -> Json:
        return self._head | {"choices": [_completion(index, text, None)], "usage": None}

    def end(self, index: int, finish_reason: str) -> Json:
        choice = _completion(index, "", finish_reason)
        return self._head | {"choices": [choice], "usage": None}

    def usage(self, usage: Json) -> Json:
        return {**self._head, "choices": [], "usage": usage}

    def whole(self, choices: Sequence[Choice], usage: Json) -> Json:
        written = [_completion(c.index, c.text, c.finish_reason) for c in choices]
        return {**self._head, "choices": written, "usage": usage}


def _completion(index: int, text: str, finish_reason: str | None) -> Json:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _chat_logprobs(details: Sequence[TokenDetail] | None) -> Json | None:
    return None if details is None else {"content": details, "refusal": None}
