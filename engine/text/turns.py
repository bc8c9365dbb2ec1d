"""Messages as templates read them, in the shape that transformers gives them."""

from typing import Any

from engine.process.protocol import Message, ToolCall


def turn(message: Message, *, as_parts: bool) -> dict[str, Any]:
    """Keys that the message lacks are left out, for templates ask whether they are defined.
    `as_parts` gives the content as a list of parts, else it is one text."""
    entry: dict[str, Any] = {"role": message.role, "content": _content(message, as_parts)}
    if message.name is not None:
        entry["name"] = message.name
    if message.tool_calls:
        entry["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        entry["tool_call_id"] = message.tool_call_id
    return entry


def _content(message: Message, as_parts: bool) -> str | list[dict[str, str]]:
    content = message.content
    if not as_parts:
        return "".join(content)
    texts = (content,) if isinstance(content, str) else content
    return [{"type": "text", "text": text} for text in texts]


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
