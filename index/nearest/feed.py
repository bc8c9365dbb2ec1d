"""The change feed: how puts and deletions become pages of `Changes`. Pure.

A store numbers its changes. Whoever follows the feed first reads all that is there (from cursor 0,
up to the change that was the last at that moment), then what comes after it, deletions included.
"""

import msgspec

from index.entry import Entry
from index.store import Changes

_POSITION_BITS = 56


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a follower stands.

    While it reads what was there when it began, `until` is the last change of that moment and
    `after` the last one that it has read; later `until` is 0.
    """

    after: int
    until: int = 0

    @classmethod
    def parse(cls, number: int, *, last: int) -> "Cursor":
        """From its number; 0 begins with all that is there at change `last`."""
        if number == 0:
            return cls(after=0, until=last)
        return cls(after=number & ((1 << _POSITION_BITS) - 1), until=number >> _POSITION_BITS)

    def number(self) -> int:
        """As it stands in `Changes`."""
        return self.until << _POSITION_BITS | self.after


class Put(msgspec.Struct, frozen=True):
    """An entry that is there now. `entry` is None when its record cannot be read."""

    change: int
    entry: Entry | None


class Deletion(msgspec.Struct, frozen=True):
    """A key that was freed."""

    change: int
    key: str


def first_page(cursor: Cursor, puts: list[Put], *, limit: int) -> Changes:
    """A page of what was there. `puts`: the first `limit` after the cursor, up to its `until`."""
    full = len(puts) == limit
    rest = Cursor(after=puts[-1].change, until=cursor.until) if full else Cursor(after=cursor.until)
    return Changes(put=_entries(puts), deleted=(), cursor=rest.number())


def next_page(cursor: Cursor, puts: list[Put], deletions: list[Deletion], *, limit: int) -> Changes:
    """A page of what came after. Both lists hold the first `limit` after the cursor, in order."""
    numbers = sorted([*(put.change for put in puts), *(gone.change for gone in deletions)])[:limit]
    if not numbers:
        return Changes(put=(), deleted=(), cursor=cursor.number())
    last = numbers[-1]
    return Changes(
        put=_entries([put for put in puts if put.change <= last]),
        deleted=tuple(gone.key for gone in deletions if gone.change <= last),
        cursor=Cursor(after=last).number(),
    )


def reset() -> Changes:
    """The cursor is of no use any more."""
    return Changes(put=(), deleted=(), cursor=0, reset=True)


def _entries(puts: list[Put]) -> tuple[Entry, ...]:
    return tuple(put.entry for put in puts if put.entry is not None)
