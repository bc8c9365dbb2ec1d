"""Who says what in a request: its turns, and the last user text, which alone is matched by meaning.

All functions take the decoded body of a request that `proxy.request.wire` has let in, so types are
known.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from proxy.call import Surface

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_SYSTEM = frozenset({"system", "developer"})
_TOOL = frozenset({"tool", "function"})


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `role` is `user`, `system`, `assistant`, `tool` or what else the client wrote;
    `developer` is `system`."""

    role: str
    texts: tuple[str, ...]
    others: tuple[str, ...] = ()
    """Types of the parts that are not text: `image_url`, `input_audio`, `file` and others."""


def turns(surface: Surface, fields: dict[str, Any]) -> Iterator[Turn]:
    """The turns in order. A completion's prompt is one user turn; embeddings have none."""
    match surface:
        case Surface.CHAT:
            yield from map(_turn_of, fields["messages"])
        case Surface.RESPONSES:
            if isinstance(fields.get("instructions"), str):
                yield Turn(role="system", texts=(fields["instructions"],))
            given = fields.get("input")
            if isinstance(given, str):
                yield Turn(role="user", texts=(given,))
            elif given is not None:
                yield from map(_turn_of_item, given)
        case Surface.COMPLETIONS:
            prompt = fields.get("prompt")
            texts = [prompt] if isinstance(prompt, str) else prompt or []
            yield Turn(role="user", texts=tuple(text for text in texts if isinstance(text, str)))
        case Surface.EMBEDDINGS:
            return


def last_user_text(surface: Surface, fields: dict[str, Any]) -> str | None:
    """The text of the last turn, if that is the user's and nothing but one text; else None."""
    found: str | None = None

    def take(text: str) -> str:
        nonlocal found
        found = text
        return text

    _in_last_slot(surface, fields, take)
    return found


def with_last_user_text(surface: Surface, fields: dict[str, Any], text: str) -> dict[str, Any]:
    """`fields` with another text in the place of `last_user_text`; equal where there is none.

    Nothing is modified; what is not on the way to the text is shared with `fields`.
    """
    return _in_last_slot(surface, fields, lambda _: text)


def inputs_of(fields: dict[str, Any]) -> list[Any]:
    """The inputs of a request for embeddings, each a text or a list of token ids."""
    given = fields["input"]
    if isinstance(given, str) or isinstance(given[0], int):
        return [given]
    return list(given)


def last_user_words(surface: Surface, fields: dict[str, Any]) -> str:
    """All text of the last user turn, wherever it stands; empty where there is none."""
    words = ""
    for turn in turns(surface, fields):
        if turn.role == "user":
            words = "\n".join(turn.texts)
    return words


def system_text(surface: Surface, fields: dict[str, Any]) -> str:
    """What all system messages say, a line break between them; empty where there is none."""
    found = (turn.texts for turn in turns(surface, fields) if turn.role == "system")
    return "\n".join(text for texts in found for text in texts)


def map_texts(
    surface: Surface,
    fields: dict[str, Any],
    change: Callable[[str], str],
    *,
    in_parts: Callable[[str], str],
) -> dict[str, Any]:
    """`fields` with the text of every user and system message changed; nothing is modified.

    `in_parts` changes the texts of messages that have several: none of them is a text by itself.
    Texts of assistants and tools, completions and embeddings stay as they are.
    """

    def changed(message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        several = isinstance(content, list) and sum(map(_is_text, content)) > 1
        return _changed(message, in_parts if several else change)

    if surface is Surface.CHAT:
        return fields | {"messages": [changed(item) for item in fields["messages"]]}
    if surface is not Surface.RESPONSES:
        return fields
    result = dict(fields)
    if isinstance(fields.get("instructions"), str):
        result["instructions"] = change(fields["instructions"])
    given = fields.get("input")
    if isinstance(given, str):
        result["input"] = change(given)
    elif given is not None:
        result["input"] = [changed(item) for item in given]
    return result


def _turn_of(message: dict[str, Any]) -> Turn:
    role = message.get("role") or ""
    role = "system" if role in _SYSTEM else "tool" if role in _TOOL else role
    content = message.get("content")
    if isinstance(content, str):
        return Turn(role=role, texts=(content,))
    texts, others = [], []
    for part in content if isinstance(content, list) else ():
        if _is_text(part):
            texts.append(part["text"])
        else:
            others.append(str(part.get("type")) if isinstance(part, dict) else "unknown")
    return Turn(role=role, texts=tuple(texts), others=tuple(others))


def _turn_of_item(item: dict[str, Any]) -> Turn:
    """An input item: a message, or a tool's output, or something of the assistant's."""
    kind = item.get("type") or "message"
    if kind == "message":
        return _turn_of(item)
    if kind.endswith("_output"):
        output = item.get("output")
        return _turn_of({"role": "tool", "content": output})
    return Turn(role="assistant", texts=(), others=(kind,))


def _is_text(part: object) -> bool:
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        return False
    kind = part.get("type")
    return isinstance(kind, str) and kind in _TEXT_PARTS


def _in_last_slot(
    surface: Surface, fields: dict[str, Any], change: Callable[[str], str]
) -> dict[str, Any]:
    name = "messages" if surface is Surface.CHAT else "input"
    if surface not in (Surface.CHAT, Surface.RESPONSES):
        return fields
    given = fields.get(name)
    if isinstance(given, str):
        return fields | {name: change(given)}
    if not given or given[-1].get("role") != "user":
        return fields
    content = given[-1].get("content")
    alone = isinstance(content, str) or (
        isinstance(content, list) and len(content) == 1 and _is_text(content[0])
    )
    if not alone:
        return fields
    return fields | {name: [*given[:-1], _changed(given[-1], change)]}


def _changed(message: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if role != "user" and role not in _SYSTEM:
        return message
    if isinstance(content, str):
        return message | {"content": change(content)}
    if not isinstance(content, list):
        return message
    parts = [part | {"text": change(part["text"])} if _is_text(part) else part for part in content]
    return message | {"content": parts}
