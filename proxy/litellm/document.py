"""A config file as text, with a comment beside what needs one."""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

_WIDTH = 98
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*|\d{1,9}(ms|s|m|h|d|[KMG]iB)")
_WORDS = frozenset({"true", "false", "null"})
"""What a plain scalar would not be text for (YAML 1.2, core schema), letter case aside."""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a list, on a line of its own."""

    value: Any
    comments: tuple[str, ...] = ()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One key, with `lines` or `items` below it, or else `value`: a scalar, or a list or mapping
    on the same line."""

    key: str
    value: Any = None
    lines: "tuple[Line, ...]" = ()
    items: tuple[Item, ...] = ()
    comments: tuple[str, ...] = ()


def document(head: Sequence[str], lines: Sequence[Line], tail: Sequence[str]) -> str:
    """The text; `head` and `tail` are comments, a paragraph each."""
    parts = ["\n".join(_comments(head, ""))]
    parts += ["\n".join(_lines((line,), "")) for line in lines]
    if tail:
        parts.append("\n".join(_comments(tail, "")))
    return "\n\n".join(parts) + "\n"


def _lines(lines: Sequence[Line], indent: str) -> Iterator[str]:
    deeper = f"{indent}  "
    for line in lines:
        yield from _comments(line.comments, indent)
        if not line.lines and not line.items:
            yield f"{indent}{_scalar(line.key)}: {_flow(line.value)}"
            continue
        yield f"{indent}{_scalar(line.key)}:"
        yield from _lines(line.lines, deeper)
        for item in line.items:
            yield from _comments(item.comments, deeper)
            yield f"{deeper}- {_flow(item.value)}"


def _comments(comments: Sequence[str], indent: str) -> Iterator[str]:
    for comment in comments:
        # A line break in what is quoted would end the comment.
        words = " ".join(comment.split())
        yield from textwrap.wrap(
            words,
            _WIDTH,
            initial_indent=f"{indent}# ",
            subsequent_indent=f"{indent}#   " if words.startswith("- ") else f"{indent}# ",
            break_long_words=False,
        )


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: str | float) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return msgspec.json.encode(value).decode()
