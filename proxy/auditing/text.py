"""What an answer says, without the form in which it came."""

import msgspec

from proxy.answer.payload import Payload
from proxy.answer.replay import Unreplayable, plain


class _Part(msgspec.Struct, frozen=True):
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    content: str | list[_Part] | None = None


class _Choice(msgspec.Struct, frozen=True):
    message: _Message | None = None
    text: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    """Of chat, completions (`choices`) and responses (`output`)."""

    choices: list[_Choice] = []
    output: list[_Message] = []


_DECODER = msgspec.json.Decoder(_Answer)


def text_of(payload: Payload) -> str | None:
    """All that the answer says in words; empty where it calls tools instead, or refuses. None:
    it cannot be read."""
    if payload.has_tool_calls:
        return ""
    try:
        return text_in(plain(payload))
    except Unreplayable:
        return None


def text_in(body: bytes) -> str | None:
    """The same for the JSON of a plain answer."""
    try:
        answer = _DECODER.decode(body)
    except msgspec.MsgspecError:
        return None
    said = [_said(choice) for choice in answer.choices] + [_content(one) for one in answer.output]
    return "\n".join(filter(None, said))


def _said(choice: _Choice) -> str:
    return choice.text or ("" if choice.message is None else _content(choice.message))


def _content(message: _Message) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text or "" for part in message.content or ())
