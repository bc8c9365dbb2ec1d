"""Where two canonical requests differ. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

_ABSENT = "(absent)"
_LONGEST_CHARS = 200
_ENCODER = msgspec.json.Encoder(order="sorted")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One place; `a` and `b` are JSON, cut where they are long, or `(absent)`."""

    path: str
    """`messages[1].content`."""
    a: str
    b: str


def differences(a: Any, b: Any) -> Iterator[Difference]:
    """Every place where two decoded JSON values differ, as deep as it can be told, in the order of
    the names of members."""
    yield from _differences(a, b, "")


def _differences(a: Any, b: Any, path: str) -> Iterator[Difference]:
    if isinstance(a, dict) and isinstance(b, dict):
        for name in sorted(a.keys() | b.keys()):
            inner = f"{path}.{name}" if path else name
            yield from _members(a.get(name, _MISSING), b.get(name, _MISSING), inner)
    elif isinstance(a, list) and isinstance(b, list):
        for index in range(max(len(a), len(b))):
            one = a[index] if index < len(a) else _MISSING
            other = b[index] if index < len(b) else _MISSING
            yield from _members(one, other, f"{path}[{index}]")
    elif a != b or isinstance(a, bool) is not isinstance(b, bool):
        yield _difference(path, a, b)


class _Missing:
    """Of a member that only the other has."""


_MISSING = _Missing()


def _members(a: Any, b: Any, path: str) -> Iterator[Difference]:
    if a is _MISSING or b is _MISSING:
        yield _difference(path, a, b)
    else:
        yield from _differences(a, b, path)


def _difference(path: str, a: Any, b: Any) -> Difference:
    if isinstance(a, str) and isinstance(b, str):
        start = max(_common(a, b) - _LONGEST_CHARS // 4, 0)
        a, b = a[start:], b[start:]
    return Difference(path=path or "(all)", a=_shown(a), b=_shown(b))


def _common(a: str, b: str) -> int:
    """How many characters two texts begin with in common."""
    for index, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return index
    return min(len(a), len(b))


def _shown(value: Any) -> str:
    if value is _MISSING:
        return _ABSENT
    text = _ENCODER.encode(value).decode("utf-8", "replace")
    return text if len(text) <= _LONGEST_CHARS else text[:_LONGEST_CHARS] + "…"
