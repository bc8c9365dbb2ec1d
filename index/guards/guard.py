"""The border of a guard."""

from collections.abc import Callable
from typing import Any

import msgspec

from index.guards.text import Text


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of difference.

    `read` takes from a text what this guard compares (its feature; hashable, comparable with ==).
    `compare` is called with two features that are not equal and returns the reason to refuse, or
    None. It must be symmetric: whose prompt came first does not matter.
    """

    name: str
    """By which a policy switches it; also the head of every reason."""
    read: Callable[[Text], Any]
    compare: Callable[[Any, Any], str | None]
