"""Every text that an answer may be made from, wherever a request holds it.

Requests grow new parts, items and members all the time, and servers of their own kind have more
(`documents` of vLLM's templates). So what is left out is listed, and all else is found.
"""

import re
from collections.abc import Iterator
from typing import Any

from proxy.call import Surface

_TURNS = {Surface.CHAT: "messages", Surface.RESPONSES: "input"}
_SAID = frozenset({"text", "output_text", "refusal"})
"""Parts that hold an assistant's words."""
_SEALED = "encrypted_content"
"""Only the provider reads it."""
_BASE64 = re.compile(r"(?:data:[^,]{0,200};base64,)?[A-Za-z0-9+/\r\n]{4000,}={0,2}\s*")
"""An image, a sound or a file: nothing to read, and long."""


def sources(surface: Surface, fields: dict[str, Any]) -> Iterator[str]:
    """Texts of users, systems, tools and documents, what tools were called with, and whatever else
    stands in the request, in no certain order. Names of members are no texts.

    Answers of assistants are left out: they name what they were made of no better than the messages
    that they were made from. A vector is of its text alone: requests for embeddings have none.
    """
    if surface is Surface.EMBEDDINGS:
        return
    name = _TURNS.get(surface)
    for member, value in fields.items():
        if member == name and isinstance(value, list):
            for turn in value:
                yield from _strings(_without_answer(turn))
        else:
            yield from _strings(value)


def _without_answer(turn: Any) -> Any:
    """A message or item without what an assistant said in it."""
    if not isinstance(turn, dict) or turn.get("role") != "assistant":
        return turn
    content = turn.get("content")
    if isinstance(content, str):
        content = None
    elif isinstance(content, list):
        content = [_without_words(part) for part in content]
    return turn | {"content": content}


def _without_words(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") not in _SAID:
        return part
    return {name: value for name, value in part.items() if name not in _SAID}


def _strings(value: Any) -> Iterator[str]:
    """All strings in a value, however deep: without recursion, as clients choose the depth."""
    open_values = [value]
    while open_values:
        one = open_values.pop()
        if isinstance(one, str):
            if not _BASE64.fullmatch(one):
                yield one
        elif isinstance(one, list):
            open_values += one
        elif isinstance(one, dict):
            open_values += (inner for name, inner in one.items() if name != _SEALED)
