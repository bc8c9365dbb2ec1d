"""`POST /responses` for the bundled engine, decoded strictly: what it cannot honour is refused.

Hints that may not change the answer are ignored, as on the other surfaces, and so is what the real
API does for stored responses (`store`: nothing is stored) and for reasoning, which it has none of.
`truncation: auto` changes nothing while the input fits, and what does not fit is refused.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from proxy.settings.longcontext import LongContext
from proxy.upstreams.local.decoding import decode, refuse, refuse_unsupported
from proxy.upstreams.local.numbers import check_numbers
from proxy.upstreams.local.request import Tokens
from proxy.upstreams.local.tools import (
    FunctionBody,
    FunctionName,
    Json,
    Name,
    NamedTool,
    ObjectFormat,
    ResponseFormat,
    SchemaBody,
    SchemaFormat,
    TextFormat,
    ToolBody,
    ToolChoice,
    Tooling,
    tooling,
)

FIELDS = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
}
"""What the engine's errors name otherwise."""
_LOGPROBS = "message.output_text.logprobs"


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """What chat completions nest stands flat here."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None

    def as_chat(self) -> ToolBody:
        """The same in the terms of chat completions."""
        function = FunctionBody(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            strict=self.strict,
        )
        return ToolBody(type="function", function=function)


class FunctionChoice(msgspec.Struct, frozen=True, kw_only=True):
    """`tool_choice`: this one."""

    type: Literal["function"]
    name: str


class FlatSchema(msgspec.Struct, frozen=True, kw_only=True, tag="json_schema"):
    schema: Json
    name: str | None = None
    strict: bool | None = None
    description: str | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    format: TextFormat | ObjectFormat | FlatSchema | None = None


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """None is the same as absent."""

    input: str | Annotated[list[Json], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: list[str] | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    metadata: Json | None = None
    long_context: LongContext | None = None
    stream: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None

    @property
    def tooling(self) -> Tooling:
        """Raises ClientError."""
        tools = [tool.as_chat() for tool in self.tools or ()]
        try:
            return tooling(tools, self._choice, parallel=self.parallel_tool_calls is not False)
        except ValueError as error:
            refuse(str(error), "tool_choice")

    @property
    def response_format(self) -> ResponseFormat | None:
        """In the terms of chat completions."""
        wanted = None if self.text is None else self.text.format
        if not isinstance(wanted, FlatSchema):
            return wanted
        schema = SchemaBody(schema=wanted.schema, name=wanted.name, strict=wanted.strict)
        return SchemaFormat(json_schema=schema)

    @property
    def wanted_logprobs(self) -> int | None:
        """Alternatives beside each chosen token; None for no log-probabilities at all."""
        if self.top_logprobs is None and _LOGPROBS not in (self.include or ()):
            return None
        return self.top_logprobs or 0

    @property
    def _choice(self) -> ToolChoice | None:
        if isinstance(self.tool_choice, FunctionChoice):
            return NamedTool(type="function", function=FunctionName(name=self.tool_choice.name))
        return self.tool_choice


def decode_response(body: bytes) -> ResponseBody:
    """Raises ClientError (400) that names the field."""
    response = decode(body, ResponseBody)
    check_numbers(body)
    refuse_unsupported(
        {
            "background": bool(response.background),
            # Nothing is kept from which an answer could go on.
            "previous_response_id": response.previous_response_id is not None,
            "conversation": response.conversation is not None,
            "prompt": response.prompt is not None,
        }
    )
    return response
