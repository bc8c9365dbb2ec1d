"""Defaults of the config's parts."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def default(value: T) -> T:
    """A default that msgspec's schema cannot show by itself; `proxy.settings.schema` shows it."""
    return msgspec.field(default_factory=lambda: value)
