"""What a request was made from, beside its words: the tools that were called, and documents."""

import base64
import binascii
import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from proxy.call import Surface

_DOCUMENTS = frozenset({"file", "input_file", "document"})


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that an assistant called earlier in the conversation."""

    name: str
    arguments: str
    """As it was written; usually a JSON object."""

    def values(self, argument: str) -> tuple[str, ...]:
        """The values of one argument: one, or those of a list. None where it is missing, or is
        neither text nor a number."""
        try:
            found = _OBJECT.decode(self.arguments).get(argument)
        except (msgspec.MsgspecError, RecursionError):
            return ()
        several = found if isinstance(found, list) else [found]
        return tuple(
            str(one) for one in several if isinstance(one, str | int) and not isinstance(one, bool)
        )


def tool_calls(surface: Surface, fields: dict[str, Any]) -> Iterator[ToolCall]:
    """All calls, in order."""
    for item in _items(surface, fields):
        if item.get("type") in ("function_call", "custom_tool_call"):
            yield from _call(item, "input" if "input" in item else "arguments")
        calls = item.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            for kind, member in (("function", "arguments"), ("custom", "input")):
                if isinstance(call, dict) and isinstance(call.get(kind), dict):
                    yield from _call(call[kind], member)


def documents(surface: Surface, fields: dict[str, Any]) -> Iterator[str]:
    """What names each document block: SHA-256 (hex) of the file's bytes or of its text, or the id
    or URL of a file that is kept elsewhere."""
    for item in _items(surface, fields):
        content = item.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") in _DOCUMENTS:
                inner = part.get("file")
                yield from _named(inner if isinstance(inner, dict) else part)


def _items(surface: Surface, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    given = fields.get("messages" if surface is Surface.CHAT else "input")
    if surface in (Surface.CHAT, Surface.RESPONSES) and isinstance(given, list):
        yield from given


def _call(said: dict[str, Any], member: str) -> Iterator[ToolCall]:
    name, arguments = said.get("name"), said.get(member)
    if isinstance(name, str):
        yield ToolCall(name=name, arguments=arguments if isinstance(arguments, str) else "")


def _named(part: dict[str, Any]) -> Iterator[str]:
    for member in ("file_id", "file_url"):
        if isinstance(part.get(member), str):
            yield part[member]
    for member in ("file_data", "text", "data"):
        if isinstance(part.get(member), str):
            yield hashlib.sha256(_content(part[member])).hexdigest()


def _content(written: str) -> bytes:
    """The bytes of a data URL, else the text itself."""
    head, comma, data = written.partition(";base64,")
    if comma and head.startswith("data:"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            pass  # not what it claims to be: its text names it as well
    return written.encode("utf-8", "surrogatepass")


_OBJECT = msgspec.json.Decoder(dict[str, Any])
