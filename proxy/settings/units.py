"""Durations, sizes and secrets as they are written in the config."""

import math
import re
from typing import Any

_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)?")
_BYTES = {
    None: 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}  # fmt: skip


class Duration(float):
    """Seconds. Written `10s`, `5m`, `1h`, `2d`, `250ms`, or a number of seconds."""

    @classmethod
    def parse(cls, value: object) -> "Duration":
        """Raises ValueError with a message for the user, which does not repeat the value."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if value >= 0 and math.isfinite(value):
                return cls(value)
        elif isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
            return cls(float(match[1]) * _SECONDS[match[2]])
        raise ValueError("expected a duration such as 250ms, 10s, 5m, 1h or 2d")

    def __str__(self) -> str:
        """As it is written: the largest unit that divides it."""
        if not self:
            return "0s"
        for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
            if self % seconds == 0:
                return f"{self / seconds:.0f}{unit}"
        return f"{self * 1000:g}ms"


class Bytes(int):
    """A size. Written `64MiB`, `8GiB`, or a number of bytes."""

    @classmethod
    def parse(cls, value: object) -> "Bytes":
        """Raises ValueError with a message for the user, which does not repeat the value."""
        if isinstance(value, int) and not isinstance(value, bool):
            if value >= 0:
                return cls(value)
        elif isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            return cls(float(match[1]) * _BYTES[match[2]])
        raise ValueError("expected a size such as 64KiB, 256MiB or 8GiB")

    def __str__(self) -> str:
        """As it is written: the largest unit that divides it."""
        for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if self and self % size == 0:
                return f"{int(self) // size}{unit}"
        return f"{int(self)}B"


class Secret(str):
    """A string that never shows itself: `repr` and the config dump say `***`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'" if self else "''"


def from_config(kind: type, value: object) -> Any:
    """msgspec `dec_hook` for the types of this file."""
    if kind is Duration or kind is Bytes:
        return kind.parse(value)
    if kind is Secret:
        if isinstance(value, str):
            return Secret(value)
        raise ValueError("expected text")
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
    """msgspec `enc_hook` of the config dump: secrets masked, units as they are written."""
    if isinstance(value, Secret):
        return "***" if value else ""
    if isinstance(value, (Duration, Bytes)):
        return str(value)
    raise NotImplementedError(type(value))
