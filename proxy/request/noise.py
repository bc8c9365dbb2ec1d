"""What programs write into requests anew each time, taken out before a request is keyed: ids and
times in texts, and the ids of messages and tool calls. What is forwarded is the original."""

from collections.abc import Collection
from typing import Any

import regex  # type: ignore[import-untyped]  # no stubs are published with it

from proxy.call import Surface
from proxy.request.budget import Budget

KNOWN = {
    "uuid": r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    "timestamp": (
        r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
        r"(?: ?(?:Z\b|UTC\b|[+-]\d\d:?\d\d))?"
    ),
    "request_id": (
        r"\b(?:req|request|trace|span|session|run|corr)[_-](?=[A-Za-z]*\d)[0-9A-Za-z]{8,64}\b"
    ),
}
"""Names for common patterns. A date without a time is no timestamp: it may be the question."""

_MARK = "\ufffc"
"""Unicode's "object replacement": that there was something still counts."""
_IDS = frozenset({"id", "tool_call_id", "call_id"})


def strip(text: str, patterns: Collection[str], budget: Budget) -> str:
    """`text` with all that `patterns` find replaced by a mark. A pattern is a name of `KNOWN` or a
    regular expression; the order does not matter as long as they find different things.

    Raises TimeoutError when the budget is spent. What is then left in the text would make another
    key each time, so there is none.
    """
    for pattern in sorted(patterns):
        text = regex.sub(KNOWN.get(pattern, pattern), _MARK, text, timeout=budget.left_s())
    return text


def renumber(surface: Surface, fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` with the ids of messages, items and tool calls replaced by numbers, in the order in
    which they first occur; nothing is modified. The same id stays the same number, so a tool's
    answer still belongs to its call."""
    name = "messages" if surface is Surface.CHAT else "input"
    given = fields.get(name)
    if surface not in (Surface.CHAT, Surface.RESPONSES) or not isinstance(given, list):
        return fields
    numbers: dict[str, str] = {}
    return fields | {name: [_renumbered(item, numbers) for item in given]}


def _renumbered(item: dict[str, Any], numbers: dict[str, str]) -> dict[str, Any]:
    changed = {
        name: numbers.setdefault(value, f"{_MARK}{len(numbers)}")
        if name in _IDS and isinstance(value, str)
        else value
        for name, value in item.items()
    }
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        changed["tool_calls"] = [
            _renumbered(call, numbers) if isinstance(call, dict) else call for call in calls
        ]
    return changed
