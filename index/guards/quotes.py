"""Quoted strings are taken literally."""

import re

from index.guards.guard import Guard
from index.guards.text import Text

_QUOTED = re.compile(
    r'"([^"]{1,400})"|“([^“”]{1,400})”|«([^«»]{1,400})»|[《〈]([^《》〈〉]{1,400})[》〉]'
    r"|[「『]([^「」『』]{1,400})[」』]|(?<!\w)\'([^\']{1,400})\'(?!\w)"
)


def _read(text: Text) -> tuple[str, ...]:
    found = (next(filter(None, groups)) for groups in _QUOTED.findall(text.source))
    return tuple(_plain(part) for part in found)


def _plain(part: str) -> str:
    """As prose, unless it is one word, or no more than signs and spaces."""
    words = part.split()
    return " ".join(words if len(words) == 1 else map(str.lower, words)).strip(".,!?") or part


def _compare(a: tuple[str, ...], b: tuple[str, ...]) -> str | None:
    return "quotes"


QUOTES = Guard(name="quotes", read=_read, compare=_compare)
