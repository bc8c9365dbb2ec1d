"""Numbers and nesting that the engine's messages have no room for."""

import re
from typing import Any

import msgspec

from proxy.errors import ClientError
from proxy.request.wire import MAX_DEPTH
from proxy.upstreams.local.decoding import refuse

_LONG = re.compile(rb"\d{19}")
"""No shorter number is too large."""
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""Of msgpack."""
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])


def check_numbers(body: bytes) -> None:
    """Raises ClientError (400) that names the member of the body with an integer beyond 64 bits.
    What is no JSON object is left to whoever decodes it."""
    if _LONG.search(body) is None:
        return
    try:
        members = _ARGUMENTS.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return
    for name, value in members.items():
        if _Reach(value).too_large:
            raise ClientError(400, f"`{name}`: an integer is beyond 64 bits.", param=name)


def arguments_of(text: str, param: str) -> dict[str, Any]:
    """Of a call in an earlier turn. Raises ClientError (400) for what is no JSON object, or is
    one that is nested too deep or has integers beyond 64 bits."""
    try:
        arguments = _ARGUMENTS.decode(text or "{}")
    except (msgspec.MsgspecError, RecursionError):
        refuse("Arguments are a JSON object, as text.", param)
    reach = _Reach(arguments)
    if reach.depth > MAX_DEPTH:
        refuse(f"Arguments are nested more than {MAX_DEPTH} levels deep.", param)
    if reach.too_large:
        refuse("An integer in the arguments is beyond 64 bits.", param)
    return arguments


class _Reach:
    """How far a JSON value goes. Walks level by level: it may be nested deeper than calls may."""

    def __init__(self, value: Any) -> None:
        self.depth = 0
        self.too_large = False
        level = [value]
        while level:
            self.too_large |= any(map(_is_too_large, level))
            level = [inner for outer in level for inner in _inside(outer)]
            self.depth += bool(level)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _is_too_large(value: Any) -> bool:
    return isinstance(value, int) and not _SMALLEST <= value <= _LARGEST
