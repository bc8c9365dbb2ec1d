"""The reference of the config as a page of Markdown, from its schema. Pure but for the schema."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proxy.settings.schema import schema

_HEAD = """# The config, key by key

Written by `rejoinder schema --markdown`: edit the docstrings that it reads. `rejoinder check FILE`
says what is wrong with a config, with path and line; `rejoinder schema` prints the same as JSON
Schema for editors. [configs/](../configs) has whole ones.

`${NAME}` stands for a variable of the environment, `${NAME:-WORDS}` for one with a default.

| unit | as |
|---|---|
| duration | `250ms`, `10s`, `5m`, `1h`, `2d`, or a number of seconds |
| size | `64KiB`, `256MiB`, `8GiB`, or a number of bytes |
"""
_UNITS = {
    "Seconds. Written `10s`, `5m`, `1h`, `2d`, `250ms`, or a number of seconds.": "duration",
    "A size. Written `64MiB`, `8GiB`, or a number of bytes.": "size",
    "A secret; write ${NAME} to take it from the environment.": "secret",
}
"""What a key's description ends with, and the word for it here."""
_REF = "#/$defs/"
_ROOT = "Config"


def markdown() -> str:
    """One table for each group of keys, in the order in which they are first named."""
    definitions: Mapping[str, Any] = msgspec.json.decode(schema())["$defs"]
    parts = [_HEAD, *(_section(name, definitions[name]) for name in _in_order(definitions))]
    return "\n".join(parts)


def _in_order(definitions: Mapping[str, Any]) -> list[str]:
    found: list[str] = [_ROOT]
    for name in found:  # grows on the way: breadth first
        found += [one for one in dict.fromkeys(_named(definitions[name])) if one not in found]
    return found


def _named(node: Any) -> Iterator[str]:
    """The groups that a part of the schema refers to."""
    match node:
        case {"$ref": str(reference)}:
            yield reference.removeprefix(_REF)
        case dict():
            for child in node.values():
                yield from _named(child)
        case list():
            for child in node:
                yield from _named(child)


def _section(name: str, definition: Mapping[str, Any]) -> str:
    required = definition.get("required", ())
    rows = [
        _row(key, shown, is_required=key in required)
        for key, shown in definition["properties"].items()
    ]
    head = ("| key | type | default | |", "|---|---|---|---|")
    text = " ".join(definition.get("description", "").split())
    return "\n".join((f"## {name}\n", f"{text}\n", *head, *rows, ""))


def _row(key: str, shown: Mapping[str, Any], *, is_required: bool) -> str:
    words, unit = _without_unit(shown.get("description", ""))
    kind = unit or _kind(shown)
    default = "required" if is_required else _default(shown.get("default"))
    return f"| `{key}` | {kind} | {default} | {words.replace('|', chr(92) + '|')} |"


def _without_unit(description: str) -> tuple[str, str]:
    for text, unit in _UNITS.items():
        if description.endswith(text):
            return description.removesuffix(text).strip(), unit
    return description, ""


def _default(value: Any) -> str:
    if value is None or value == "":
        return "-"
    written = json.dumps(value, ensure_ascii=False)
    # The defaults of a whole group stand in its own table.
    return "see there" if isinstance(value, dict) and value else f"`{written.strip(chr(34))}`"


def _kind(node: Mapping[str, Any]) -> str:
    match node:
        case {"$ref": str(reference)}:
            name = reference.removeprefix(_REF)
            return f"[{name}](#{name.lower()})"
        case {"anyOf": [*choices]}:
            return " or ".join(_kind(one) for one in choices if one != {"type": "null"})
        case {"enum": [*values]}:
            return ", ".join(f"`{value}`" for value in values if value is not None)
        case {"type": "array"}:
            return f"list of {_kind(_items(node))}"
        case {"type": "object", "additionalProperties": dict(value)}:
            return f"names, each with {_kind(value)}"
        case {"type": str(kind)}:
            return kind
        case {"type": [*kinds]}:
            return " or ".join(kinds)
        case _:
            return "any"


def _items(node: Mapping[str, Any]) -> Mapping[str, Any]:
    items = node.get("items")
    return items if isinstance(items, dict) else {}
