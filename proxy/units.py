"""Durations, sizes and secrets as they are written in the config."""

import re
from typing import Any

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?")
_BYTES = {
    None: 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip


class Duration(float):
    """Seconds. Written `10s`, `5m`, `1h`, `2d`, `250ms`, or a number of seconds."""

    @classmethod
    def parse(cls, value: object) -> "Duration":
        """Raises ValueError with a message for the user."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
            return cls(value)
        match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{value!r} is not a duration; write 250ms, 10s, 5m, 1h or 2d")
        return cls(float(match[1]) * _SECONDS[match[2]])


class Bytes(int):
    """A size. Written `64MiB`, `8GiB`, or a number of bytes."""

    @classmethod
    def parse(cls, value: object) -> "Bytes":
        """Raises ValueError with a message for the user."""
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return cls(value)
        match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{value!r} is not a size; write 64KiB, 256MiB or 8GiB")
        return cls(float(match[1]) * _BYTES[match[2]])


class Secret(str):
    """A string that never shows itself: `repr` and the config dump say `***`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


def from_config(kind: type, value: object) -> Any:
    """msgspec `dec_hook` for the types of this file."""
    if kind is Duration or kind is Bytes:
        return kind.parse(value)
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise NotImplementedError(kind)


def schema_of(kind: type) -> dict[str, Any]:
    """msgspec `schema_hook` for the types of this file."""
    if kind is Duration:
        return {"type": ["string", "number"], "description": Duration.__doc__}
    if kind is Bytes:
        return {"type": ["string", "integer"], "description": Bytes.__doc__}
    if kind is Secret:
        return {"type": "string", "description": "A secret; write ${NAME} to take it from the "
                "environment."}  # fmt: skip
    raise NotImplementedError(kind)


def to_config(value: object) -> Any:
    """msgspec `enc_hook` of the config dump: secrets masked."""
    if isinstance(value, Secret):
        return "***" if value else ""
    if isinstance(value, Duration):
        return float(value)
    if isinstance(value, Bytes):
        return int(value)
    raise NotImplementedError(type(value))
