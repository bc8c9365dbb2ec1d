"""Tools and formats of answers in request bodies: what is asked for, and what is refused."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
Json = dict[str, Any]


class FunctionBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: Name
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None


class ToolBody(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the answer may call."""

    type: Literal["function"]
    function: FunctionBody


class FunctionName(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class NamedTool(msgspec.Struct, frozen=True, kw_only=True):
    """`tool_choice`: this one."""

    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: str = "{}"
    """JSON text."""


class CallBody(msgspec.Struct, frozen=True, kw_only=True):
    """A call in an earlier turn of the assistant."""

    id: str
    function: CalledFunction


class SchemaBody(msgspec.Struct, frozen=True, kw_only=True):
    schema: Json
    name: str | None = None
    strict: bool | None = None


class TextFormat(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    pass


class ObjectFormat(msgspec.Struct, frozen=True, kw_only=True, tag="json_object"):
    pass


class SchemaFormat(msgspec.Struct, frozen=True, kw_only=True, tag="json_schema"):
    json_schema: SchemaBody


ResponseFormat = TextFormat | ObjectFormat | SchemaFormat


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """What a request wants with tools."""

    offered: tuple[ToolBody, ...] = ()
    """Those that the answer may call: none, all, or the one that was named."""
    forced: bool = False
    """The answer is a call, nothing else."""
    parallel: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tool.function.name for tool in self.offered)


def tooling(tools: list[ToolBody] | None, choice: ToolChoice | None, *, parallel: bool) -> Tooling:
    """Raises ValueError, with what is wrong with the choice."""
    offered = tuple(tools or ())
    match choice:
        case None | "auto":
            return Tooling(offered=offered, parallel=parallel)
        case "none":
            return Tooling()
        case "required":
            if not offered:
                raise ValueError("`required` needs `tools`.")
            return Tooling(offered=offered, forced=True, parallel=parallel)
        case NamedTool():
            named = tuple(tool for tool in offered if tool.function.name == choice.function.name)
            if not named:
                raise ValueError(f"There is no tool {choice.function.name!r}.")
            return Tooling(offered=named[:1], forced=True, parallel=False)
