"""Tools for models whose chat template knows none: explained in words, in Hermes' format."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from engine.process.protocol import Message
from engine.text.toolformat import HERMES

_EXPLANATION = """\
You can call functions. These are available, one JSON description a line:
<tools>
{tools}
</tools>
To call one, answer with its name and arguments as JSON, in this form and nothing else:
{opening}
{{"name": "the function's name", "arguments": {{"argument": "value"}}}}
{closing}"""


def in_words(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> tuple[Message, ...]:
    """The same chat without calls, results and tools: calls as the assistant's text, results as
    the user's, the tools in the system message. Chats without any of them stay as they are."""
    turns = [_plain(message) for message in messages]
    if not tools:
        return tuple(turns)
    explanation = _EXPLANATION.format(
        tools="\n".join(_dumped(tool) for tool in tools),
        opening=HERMES.opening,
        closing=HERMES.closing,
    )
    if turns[0].role == "system":
        first = f"{_text(turns[0])}\n\n{explanation}"
        return (msgspec.structs.replace(turns[0], content=first), *turns[1:])
    return (Message(role="system", content=explanation), *turns)


def _plain(message: Message) -> Message:
    if message.role == "tool":
        text = f"<tool_response>\n{_text(message)}\n</tool_response>"
        return Message(role="user", content=text)
    if not message.tool_calls:
        return message
    calls = [
        f"{HERMES.opening}\n"
        f"{_dumped({'name': call.name, 'arguments': call.arguments})}\n{HERMES.closing}"
        for call in message.tool_calls
    ]
    said = [text] if (text := _text(message)) else []
    return Message(role=message.role, content="\n".join(said + calls), name=message.name)


def _text(message: Message) -> str:
    return message.content if isinstance(message.content, str) else "".join(message.content)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
