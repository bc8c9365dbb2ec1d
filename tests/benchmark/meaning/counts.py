"""Shares with their intervals, and tables of them."""

import math
from collections.abc import Iterable, Sequence

import msgspec

_Z = 1.96


class Share(msgspec.Struct):
    """How many of how many."""

    num: int = 0
    total: int = 0

    def count(self, hit: bool) -> None:
        self.num += hit
        self.total += 1

    def __str__(self) -> str:
        return f"{self.num / self.total:.3f}" if self.total else "-"

    def interval(self) -> str:
        """95 % interval of Wilson (J. Am. Stat. Assoc. 22, 1927)."""
        if not self.total:
            return "-"
        share, spread = self.num / self.total, _Z**2 / self.total
        middle = (share + spread / 2) / (1 + spread)
        half = (
            _Z
            / (1 + spread)
            * math.sqrt(share * (1 - share) / self.total + spread / self.total / 4)
        )
        return f"{max(0.0, middle - half):.4f}-{min(1.0, middle + half):.4f}"


def table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[object]]]) -> None:
    """Print a table; numbers stand to the right."""
    lines = [(name, [str(cell) for cell in cells]) for name, cells in rows]
    width = max([8, *(len(cell) for _, cells in lines for cell in cells), *map(len, columns)]) + 2
    print(f"\n{title}")
    print(f"{'':50}" + "".join(f"{column:>{width}}" for column in columns))
    for name, cells in lines:
        print(f"{name[:49]:50}" + "".join(f"{cell:>{width}}" for cell in cells))
