"""Bodies for the bundled engine, decoded strictly: what it cannot honour is refused, not ignored.

Unknown fields are ignored, as OpenAI-compatible servers do. So are hints that may not change the
answer (`user`, `metadata`, `store`, `service_tier`, `prediction`, `reasoning_effort`, …).
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from proxy.settings.longcontext import LongContext
from proxy.upstreams.local.decoding import decode, refuse, refuse_unsupported
from proxy.upstreams.local.numbers import check_numbers
from proxy.upstreams.local.tools import (
    CallBody,
    ResponseFormat,
    ToolBody,
    ToolChoice,
    Tooling,
    tooling,
)

_MAX_STOPS = 16
_MAX_CHOICES = 128
_COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for legacy completions."""

Penalty = Annotated[float, Meta(ge=-2, le=2)]
Tokens = Annotated[int, Meta(ge=1)]
TokenId = Annotated[int, Meta(ge=0, lt=2**32)]
Prompt = str | tuple[int, ...]
Body = TypeVar("Body", "ChatBody", "CompletionBody")


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the client sent it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[CallBody] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None


class SamplingBody(msgspec.Struct, frozen=True, kw_only=True):
    """What both surfaces share. None is the same as absent."""

    max_tokens: Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    logit_bias: dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, Meta(ge=1, le=16)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    ignore_eos: bool | None = None
    long_context: LongContext | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class ChatBody(SamplingBody, frozen=True, kw_only=True):
    """`POST /chat/completions`."""

    messages: Annotated[list[Turn], Meta(min_length=1)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[ToolBody] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Any] | None = None
    response_format: ResponseFormat | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None

    @property
    def fields(self) -> dict[str, str]:
        """What the engine's errors name otherwise."""
        return {"max_tokens": "max_completion_tokens"} if self.max_completion_tokens else {}

    @property
    def tooling(self) -> Tooling:
        """Raises ClientError."""
        try:
            parallel = self.parallel_tool_calls is not False
            return tooling(self.tools, self.tool_choice, parallel=parallel)
        except ValueError as error:
            refuse(str(error), "tool_choice")


class CompletionBody(SamplingBody, frozen=True, kw_only=True):
    """`POST /completions`."""

    prompt: str | list[Any]
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: int | None = None

    @property
    def answer_tokens(self) -> int:
        return self.max_tokens or _COMPLETION_MAX_TOKENS


def decode_chat(body: bytes) -> ChatBody:
    """Raises ClientError (400) that names the field."""
    chat = _decode(body, ChatBody)
    refused = {
        "functions": bool(chat.functions),
        "modalities": chat.modalities not in (None, [], ["text"]),
        "audio": chat.audio is not None,
        "web_search_options": chat.web_search_options is not None,
    }
    refuse_unsupported(refused)
    if chat.top_logprobs is not None and not chat.logprobs:
        refuse("`top_logprobs` needs `logprobs: true`.", "top_logprobs")
    return chat


def decode_completion(body: bytes) -> CompletionBody:
    """Raises ClientError (400) that names the field."""
    completion = _decode(body, CompletionBody)
    refused = {
        "suffix": bool(completion.suffix),
        "best_of": completion.best_of not in (None, completion.n or 1),
    }
    refuse_unsupported(refused)
    if completion.echo and completion.logprobs is not None:
        refuse("Log-probabilities of the prompt are not computed: `echo` goes alone.", "logprobs")
    return completion


def turn_text(turn: Turn, index: int) -> str:
    """The text of message `index`; text parts are joined. Raises ClientError for other parts."""
    if turn.role == "function":
        refuse("Functions are called as tools: `role` is `tool`.", f"messages[{index}].role")
    if turn.role == "tool" and turn.tool_call_id is None:
        refuse("Which call is answered?", f"messages[{index}].tool_call_id")
    if isinstance(turn.content, list):
        return "".join(_part_text(part, index, at) for at, part in enumerate(turn.content))
    if turn.content is None and turn.role != "assistant":
        refuse("A message needs `content`.", f"messages[{index}].content")
    return turn.content or ""


def prompts_of(completion: CompletionBody) -> list[Prompt]:
    """A text or token ids each. Raises ClientError for none, or too many choices of them all."""
    match completion.prompt:
        case str() as text:
            return [text]
        case [int(), *_] as token_ids:
            prompts = [_prompt(token_ids)]
        case several:
            prompts = [_prompt(one) for one in several]
    if not prompts:
        refuse("There is no prompt.", "prompt")
    if len(prompts) * (completion.n or 1) > _MAX_CHOICES:
        refuse(f"At most {_MAX_CHOICES} choices of all prompts are possible.", "prompt")
    return prompts


def _prompt(written: Any) -> Prompt:
    if isinstance(written, str):
        return written
    if not isinstance(written, list) or not all(type(item) is int for item in written):
        refuse("A prompt is a string or a list of token ids; several: a list of these.", "prompt")
    return tuple(written)


def _part_text(part: dict[str, Any], index: int, at: int) -> str:
    text = part.get("text")
    if part.get("type") != "text" or not isinstance(text, str):
        refuse(
            f"The bundled engine reads text only, not {part.get('type')!r} parts.",
            f"messages[{index}].content[{at}]",
        )
    return text


def _decode(body: bytes, kind: type[Body]) -> Body:
    decoded = decode(body, kind)
    check_numbers(body)
    _check_stops(decoded.stops)
    return decoded


def _check_stops(stops: Sequence[str]) -> None:
    if len(stops) > _MAX_STOPS:
        refuse(f"At most {_MAX_STOPS} stop strings are possible.", "stop")
    if "" in stops:
        refuse("A stop string cannot be empty.", "stop")
