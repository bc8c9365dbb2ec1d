"""What commands print: JSON for programs, lines and tables for people."""

import math
import sys
from collections.abc import Iterator
from typing import Any

import msgspec


def print_json(body: bytes) -> None:
    """Indented JSON, as it came."""
    sys.stdout.write(msgspec.json.format(body, indent=2).decode() + "\n")


def print_line(line: str) -> None:
    """A line of a command's result."""
    sys.stdout.write(line + "\n")


def note(line: str) -> None:
    """A line beside the result: warnings, hints."""
    sys.stderr.write(line + "\n")


def print_figures(body: bytes) -> None:
    """A JSON object as a table of names and values; nested names are joined by dots."""
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", overflow="fold")
    for name, value in _flat(msgspec.json.decode(body)):
        table.add_row(name, figure(value))
    Console(markup=False, highlight=False, emoji=False).print(table)


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 answer`, `2,000 answers`; `plural` where it is not made with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def age(seconds: float) -> str:
    """A span in the largest unit that fits it: `42s`, `3m`, `5h`, `2d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"


def span(seconds: float) -> str:
    """A time that passed: `0.4 s`, `12.0 min`, `3.5 h`."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.1f} s"


def share(part: float | None) -> str:
    """A part of a whole, in three digits: `61.2%`, `0.04%`; `-` for none."""
    return "-" if part is None else f"{100 * part:.3g}%"


def money(amount: float) -> str:
    """`1,234.50`; below one, up to three digits that say something: `0.00312`, `0.04`."""
    cents = f"{amount:,.2f}"
    if not 0 < abs(amount) < 1:
        return cents
    digits = f"{amount:.{2 - math.floor(math.log10(abs(amount)))}f}".rstrip("0")
    return max(cents, digits, key=len)


def size(num_bytes: int) -> str:
    """`812 B`, `3.4 KiB`, `1.2 GiB`."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def one_line(text: str, *, longest: int) -> str:
    """Text from outside on one line, cut, with control characters shown and not obeyed."""
    words = " ".join(text.split())
    visible = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words)
    return visible if len(visible) <= longest else visible[: longest - 1] + "…"


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield name, value
        return
    for key, child in value.items():
        yield from _flat(child, f"{name}.{key}" if name else str(key))


def figure(value: Any) -> str:
    """A value of JSON without objects in it: `1,234`, `0.25`, `yes`, `-` for null."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return ", ".join(figure(item) for item in value) or "-"
    return one_line(str(value), longest=500)
