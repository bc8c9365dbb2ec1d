"""What the input of `POST /responses` says, as the turns of a chat."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, assert_never

import msgspec

from engine.process.protocol import Message, ToolCall
from proxy.upstreams.local.decoding import convert, refuse
from proxy.upstreams.local.numbers import arguments_of

_TEXT_OF = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""By type of a part, the member that holds what was said."""

Parts = str | list[dict[str, Any]]


class TurnItem(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    role: Literal["system", "developer", "user", "assistant"]
    content: Parts


class CallItem(msgspec.Struct, frozen=True, kw_only=True, tag="function_call"):
    call_id: str
    name: str
    arguments: str = "{}"


class ResultItem(msgspec.Struct, frozen=True, kw_only=True, tag="function_call_output"):
    call_id: str
    output: Parts


class ThoughtItem(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    """Of a model that reasons; no chat template has a place for it."""


Item = TurnItem | CallItem | ResultItem | ThoughtItem


def messages_of(given: str | Sequence[dict[str, Any]], instructions: str | None) -> list[Message]:
    """Calls belong to the turn in which the assistant made them. Raises ClientError for items and
    parts that are more than text and functions."""
    turns = [] if instructions is None else [Message(role="system", content=instructions)]
    if isinstance(given, str):
        return [*turns, Message(role="user", content=given)]
    for index, item in enumerate(given):
        at = f"input[{index}]"
        # The type of a message may be left out; of nothing else.
        read: Item = convert({"type": "message", **item}, Item, at=at)  # type: ignore[arg-type]  # a union
        _add(turns, read, at)
    return turns


def _add(turns: list[Message], item: Item, at: str) -> None:
    match item:
        case TurnItem():
            # Newer clients say developer where chat templates know system.
            role = "system" if item.role == "developer" else item.role
            turns.append(Message(role=role, content=_text(item.content, f"{at}.content")))
        case CallItem():
            _add_call(turns, item, at)
        case ResultItem():
            text = _text(item.output, f"{at}.output")
            turns.append(Message(role="tool", content=text, tool_call_id=item.call_id))
        case ThoughtItem():
            pass
        case _:
            assert_never(item)


def _add_call(turns: list[Message], called: CallItem, at: str) -> None:
    arguments = arguments_of(called.arguments, f"{at}.arguments")
    call = ToolCall(id=called.call_id, name=called.name, arguments=arguments)
    if not turns or turns[-1].role != "assistant":
        turns.append(Message(role="assistant"))
    calls = (*turns[-1].tool_calls, call)
    turns[-1] = msgspec.structs.replace(turns[-1], tool_calls=calls)


def _text(content: Parts, at: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_texts(content, at))


def _texts(parts: Iterable[dict[str, Any]], at: str) -> Iterable[str]:
    for index, part in enumerate(parts):
        text = part.get(_TEXT_OF.get(str(part.get("type")), ""))
        if not isinstance(text, str):
            message = f"The bundled engine reads text only, not {part.get('type')!r} parts."
            refuse(message, f"{at}[{index}]")
        yield text
