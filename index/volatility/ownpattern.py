"""A regular expression of a policy's own, which may not work long on one text.

Prompts come from clients, and some expressions take exponential time on some of them; they are
tried where nothing else of the process runs meanwhile.
"""

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
import regex  # type: ignore[import-untyped]  # no stubs are published with it

SECONDS = 0.05
"""Of processor time, on one text, for all that are tried on it together: a thousand times what an
expression takes."""
_KEPT_READINGS = 4096


class OwnPattern(msgspec.Struct, frozen=True):
    """An expression in Python's grammar, letter case aside."""

    compiled: Any

    def all_in(self, text: str) -> tuple[str, ...] | None:
        """What is found, in lower case, sorted; None when that takes too long to tell. What was
        read lately is kept, so that one text costs its time once."""
        return _read(self.compiled, text)


def own_pattern(pattern: str) -> OwnPattern:
    """Raises ValueError for what is no regular expression."""
    try:
        return OwnPattern(regex.compile(pattern, regex.IGNORECASE))
    except regex.error as error:
        raise ValueError(f"{error.msg} at position {error.pos}") from error


def any_in(patterns: Iterable[OwnPattern], text: str) -> bool:
    """Whether one of them is found. Raises TimeoutError when that takes too long to tell."""
    ends = time.process_time() + SECONDS
    for pattern in patterns:
        left_s = ends - time.process_time()
        if left_s <= 0:
            raise TimeoutError
        if pattern.compiled.search(text, timeout=left_s):
            return True
    return False


@lru_cache(maxsize=_KEPT_READINGS)
def _read(compiled: Any, text: str) -> tuple[str, ...] | None:
    try:
        found = compiled.finditer(text, timeout=SECONDS)
        return tuple(sorted(match.group().lower() for match in found))
    except TimeoutError:
        return None
