"""A mapping of LiteLLM's config that knows which of its keys nobody has read."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proxy.errors import ConfigError

_FROM_ENVIRONMENT = "os.environ/"
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the reader of the new config should know."""

    where: str
    """The place in LiteLLM's config: `litellm_settings.cache_params.ttl`."""
    message: str
    left_out: bool
    """It has no counterpart here; otherwise it is there, but works in another way."""


class Section:
    """Each reading method takes its key: what is left at the end had no reader. A value of another
    kind than is asked for stays, and is left."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = dict(values)
        self._parts: list[Section] = []
        self.path = path

    def text(self, name: str) -> str:
        """As this proxy's config writes it: `os.environ/NAME` becomes `${NAME}`; empty if absent or
        null."""
        value = self._values.get(name)
        if value is None or isinstance(value, (dict, list)):
            self._drop_null(name)
            return ""
        del self._values[name]
        return written(str(value))

    def number(self, name: str) -> float | None:
        """None if absent, or no number (one of the environment is none)."""
        value = self._values.get(name)
        try:
            number = math.nan if isinstance(value, bool) or value is None else float(value)
        except (TypeError, ValueError):
            return None
        self._drop_null(name)
        if not math.isfinite(number):
            return None
        del self._values[name]
        return number

    def flag(self, name: str) -> bool | None:
        """None if absent."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            self._drop_null(name)
            return None
        del self._values[name]
        return value

    def items(self, name: str) -> list[Any]:
        """A list as it stands; empty if absent."""
        value = self._values.get(name)
        if not isinstance(value, list):
            self._drop_null(name)
            return []
        del self._values[name]
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        """A mapping as it stands; empty if absent."""
        value = self._values.get(name)
        if not isinstance(value, dict):
            self._drop_null(name)
            return {}
        del self._values[name]
        return value

    def part(self, name: str) -> "Section":
        """A mapping below this one; empty if absent. What is left of it is left of this one."""
        value = self._values.get(name)
        values = {} if value is None else self._values[name]
        if not isinstance(values, dict):
            raise ConfigError([f"{self._place(name)}: expected a mapping"])
        self._values.pop(name, None)
        return self.add(name, values)

    def add(self, name: str, values: Mapping[str, Any]) -> "Section":
        """A mapping that was found elsewhere in this one, such as an item of a list."""
        part = Section(values, self._place(name))
        self._parts.append(part)
        return part

    def forget(self) -> None:
        """Take everything that is left."""
        self._values.clear()
        self._parts.clear()

    def left(self) -> Iterator[str]:
        """Paths of what nobody has read."""
        yield from map(self._place, self._values)
        for part in self._parts:
            yield from part.left()

    def _place(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _drop_null(self, name: str) -> None:
        if name in self._values and self._values[name] is None:
            del self._values[name]


def written(text: str) -> str:
    """Text as this proxy's config writes it."""
    name = text.removeprefix(_FROM_ENVIRONMENT)
    if name != text and _VARIABLE_NAME.fullmatch(name):
        return f"${{{name}}}"
    return text.replace("${", "$${")
