"""The labelled sets, and the part of each that the rules were not tuned on.

A line belongs to the reserve by a fixed hash of its class (streams), of the family of texts that
its pairs join (pairs), or of its text: 30 of 100. Nobody reads the reserve; it is only counted.
"""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

Row = dict[str, Any]
Rows = list[Row]
Part = Literal["all", "tuned", "reserved"]

_RESERVED_PERCENT = 30


def read(folder: Path, name: str) -> Rows:
    """The lines of a set; none where the file is absent, which is said."""
    path = folder / name
    if not path.is_file():
        print(f"skipped: there is no {path}", file=sys.stderr)
        return []
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def take(rows: Rows, part: Part, family: Callable[[Row], str]) -> Rows:
    """The lines of one part."""
    if part == "all":
        return rows
    return [row for row in rows if is_reserved(family(row)) == (part == "reserved")]


def is_reserved(family: str) -> bool:
    """Whether a family of lines belongs to the reserve."""
    digest = hashlib.sha256(family.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < _RESERVED_PERCENT


def by_class(row: Row) -> str:
    """A class of a stream."""
    return f"{row['source']}/{row['class']}"


def by_prompt(row: Row) -> str:
    """A text by itself."""
    return str(row["prompt"])


def by_texts(rows: Rows) -> Callable[[Row], str]:
    """Texts that pairs join belong together: the least of them names the family."""
    parents: dict[str, str] = {}

    def root(text: str) -> str:
        while (parent := parents.setdefault(text, text)) != text:
            parents[text] = parents[parent]
            text = parents[text]
        return text

    for row in rows:
        first, second = sorted((root(row["a"]), root(row["b"])))
        parents[second] = first
    return lambda row: root(row["a"])
