"""The ways in which models write a call after its mark: where it ends, and what it says. Pure.

JSON    {"name": …, "arguments": {…}}, or a list of these; every model may write it
named   NAME[CALL_ID]ID[ARGS]{…}: Mistral since its 11th tokenizer, the id and marks optional
tagged  <function=NAME> <parameter=KEY> value </parameter> … </function>: Qwen3-Coder
"""

import re
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from engine.text.toolformat import ToolFormat
from proxy.upstreams.local.extent import JsonExtent
from proxy.upstreams.local.tools import FunctionBody

_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\])?\s*(?=\{)")
_NAMED_SO_FAR = re.compile(
    r"\s*(?:[\w.-]+\s*(?:\[[A-Z_]*(?:\]\s*\w*\s*(?:\[[A-Z]*\]?\s*)?)?)?)?"
)  # fmt: skip
_FUNCTION = "<function="
_TAGGED = re.compile(r"\s*<function=([^<>\n]+)>(.*)</function>", re.DOTALL)
_PARAMETER = re.compile(
    r"\s*<parameter=([^<>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL
)
_TAGGED_END = re.compile(r"(?:</parameter>|<function=[^<>\n]+>)\s*</function>")
_LONGEST_END = 256
"""Of what `_TAGGED_END` matches; names and white space are not longer."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    arguments: str
    """JSON text of an object."""


class Extent(Protocol):
    """Of one value that comes in pieces."""

    broken: bool
    """It begins as none."""

    def feed(self, text: str) -> int | None:
        """Where in this piece the value ends (after its last character); None before its end."""
        ...


class CallForm(Protocol):
    """What stands after a mark."""

    def extent(self) -> Extent: ...

    def read(self, text: str) -> list[Call] | None:
        """The calls in a whole one. None where one of them is anything else than the call of a
        known tool with an object of arguments."""
        ...


class JsonCalls:
    """See `CallForm`. Some models write the arguments as JSON within JSON."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def extent(self) -> Extent:
        return JsonExtent()

    def read(self, text: str) -> list[Call] | None:
        try:
            value = msgspec.json.decode(text)
            items = value if isinstance(value, list) else [value]
            written = msgspec.convert(items, list[_Written])
            calls = [_call_of(one) for one in written]
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return None
        return calls if calls and all(call.name in self._names for call in calls) else None


class NamedCalls:
    """See `CallForm`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._json = JsonCalls(names)

    def extent(self) -> Extent:
        return _NamedExtent()

    def read(self, text: str) -> list[Call] | None:
        head = _NAMED.match(text)
        if head is None:
            return self._json.read(text)
        name = msgspec.json.encode(head[1]).decode()
        return self._json.read(f'{{"name": {name}, "arguments": {text[head.end() :]}}}')


class TaggedCalls:
    """See `CallForm`. A value is text where the tool's schema says so, else JSON if it is any."""

    def __init__(self, tools: Iterable[FunctionBody]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._json = JsonCalls(self._tools)

    def extent(self) -> Extent:
        return _TaggedExtent()

    def read(self, text: str) -> list[Call] | None:
        function = _TAGGED.fullmatch(text)
        if function is None:
            return self._json.read(text)
        tool = self._tools.get(function[1].strip())
        body = function[2].rstrip()
        if tool is None or _PARAMETER.sub("", body).strip():
            return None
        properties = (tool.parameters or {}).get("properties")
        known = properties if isinstance(properties, dict) else {}
        arguments = {key: _typed(value, known.get(key)) for key, value in _PARAMETER.findall(body)}
        return [Call(name=tool.name, arguments=msgspec.json.encode(arguments).decode())]


def call_form(form: ToolFormat, tools: Iterable[FunctionBody]) -> CallForm:
    """Of a model that writes calls like this."""
    match form.calls:
        case "json":
            return JsonCalls(tool.name for tool in tools)
        case "named":
            return NamedCalls(tool.name for tool in tools)
        case "tagged":
            return TaggedCalls(tools)


class _NamedExtent:
    """Of a name, what may stand behind it, and an object; or of JSON alone."""

    def __init__(self) -> None:
        self.broken = False
        self._head = ""
        self._json: JsonExtent | None = None

    def feed(self, text: str) -> int | None:
        if self._json is not None:
            return self._json.feed(text)
        before, self._head = len(self._head), self._head + text
        start = self._start()
        if start is None:
            self.broken = _NAMED_SO_FAR.fullmatch(self._head) is None
            return None
        self._json = JsonExtent()
        end = self._json.feed(self._head[start:])
        return None if end is None else start + end - before

    def _start(self) -> int | None:
        """Where the JSON begins."""
        if self._head.lstrip()[:1] in ("{", "["):
            return 0
        head = _NAMED.match(self._head)
        return None if head is None else head.end()


class _TaggedExtent:
    """Up to the end of the function; or of JSON alone."""

    def __init__(self) -> None:
        self.broken = False
        self._seen = ""
        self._json: JsonExtent | None = None

    def feed(self, text: str) -> int | None:
        if self._json is not None:
            return self._json.feed(text)
        before, self._seen = len(self._seen), self._seen + text
        begun = self._seen.lstrip()
        if begun[:1] in ("{", "["):
            self._json = JsonExtent()
            end = self._json.feed(self._seen)
            return None if end is None else end - before
        if begun[: len(_FUNCTION)] != _FUNCTION[: len(begun)]:
            self.broken = True
            return None
        found = _TAGGED_END.search(self._seen, max(before - _LONGEST_END, 0))
        return None if found is None else found.end() - before


class _Written(msgspec.Struct):
    """How models write a call as JSON."""

    name: str
    arguments: dict[str, object] | str | None = None
    parameters: dict[str, object] | str | None = None


def _call_of(written: _Written) -> Call:
    given = written.parameters if written.arguments is None else written.arguments
    arguments = msgspec.json.decode(given) if isinstance(given, str) else given
    checked = msgspec.convert({} if arguments is None else arguments, dict[str, object])
    return Call(name=written.name, arguments=msgspec.json.encode(checked).decode())


def _typed(text: str, schema: Any) -> object:
    """A parameter's value. What is no JSON stays text: whoever called the tool says what of it."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if kinds == "string":
        return text
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    takes_text = isinstance(kinds, list) and "string" in kinds
    return text if takes_text and value is not None else value
