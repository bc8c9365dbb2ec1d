"""Views of OpenAI's requests: the members that routing and caching read, with their types.

Everything else in a body is kept, counted and forwarded as it came (API reference, "Chat
completions", "Completions", "Embeddings", "Responses").
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Model = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=1)]


class Kind(msgspec.Struct, frozen=True):
    """A tool, the format of an answer, a piece of an item: what matters is of which kind it is."""

    type: str | None = None


class Part(msgspec.Struct, frozen=True):
    """A piece of a message; `text` where it is one of text."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True):
    """A turn of a chat."""

    role: str
    content: str | list[Part] | None = None
    tool_calls: list[Any] | None = None


class Item(msgspec.Struct, frozen=True):
    """An input item of the Responses API: a message, a tool call, its output and many more."""

    type: str | None = None
    role: str | None = None
    content: str | list[Kind] | None = None


class TextOptions(msgspec.Struct, frozen=True):
    """`text` of the Responses API."""

    format: Kind | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a client wants of its stream."""

    include_usage: bool | None = None


class ChatView(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /chat/completions`."""

    model: Model
    messages: Annotated[list[Message], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: Kind | None = None
    tools: list[Kind] | None = None
    tool_choice: str | dict[str, Any] | None = None
    modalities: list[str] | None = None
    web_search_options: dict[str, Any] | None = None


class CompletionView(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /completions`."""

    model: Model
    prompt: str | list[Any] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Count | None = None
    best_of: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    logprobs: int | None = None
    echo: bool | None = None


class EmbeddingView(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /embeddings`."""

    model: Model
    input: str | Annotated[list[Any], Meta(min_length=1)]
    encoding_format: str | None = None
    dimensions: Count | None = None


class ResponseView(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /responses`."""

    model: Annotated[str, Meta(max_length=256)] = ""
    """Empty where the request leaves it to a stored `prompt`."""
    input: str | list[Item] | None = None
    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    text: TextOptions | None = None
    include: list[str] | None = None
    tools: list[Kind] | None = None
    tool_choice: str | dict[str, Any] | None = None


View = ChatView | CompletionView | EmbeddingView | ResponseView
