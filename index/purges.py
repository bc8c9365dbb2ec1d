"""Which purges there were, and whether an entry still stands after them. Pure: no clock, no I/O."""

from collections.abc import Sequence
from typing import Literal

from index.entry import Entry, Snapshot
from index.store import ALL, Examined, Mark, Purge
from index.tags import key_tag, model_tag, tenant_tag

Standing = Literal["fresh", "soft_purged", "purged"]
Written = Literal["ok", "purged", "generation"]

RETAIN_S = 3600.0
"""How long a purge is remembered at least, swept or not. An answer that took longer than that to
make may be refused when it is stored, since the purges that it missed may be forgotten."""


class PurgeTable:
    """The purge counters of one store as one process knows them.

    `floor` is the greatest S that a forgotten purge had (0: none was forgotten). A purge is
    forgotten only when nothing that it covers is left, so stored entries are not judged by the
    floor, but an entry whose snapshot is older than it may have missed something: see `admits`.
    """

    def __init__(self, *, generation: str, sequence: int = 0, floor: int = 0) -> None:
        self.snapshot = Snapshot(generation=generation, sequence=sequence)
        self.floor = floor
        self.marks: dict[str, Mark] = {}

    @property
    def sequence(self) -> int:
        """S: how many purges there have been."""
        return self.snapshot.sequence

    def advance(self, sequence: int) -> None:
        """Set S, once all marks up to it are in `marks`."""
        self.snapshot = Snapshot(generation=self.snapshot.generation, sequence=sequence)

    def mark(self, tags: tuple[str, ...], *, soft: bool) -> int:
        """One more purge, of all these tags at once; the new S."""
        sequence = self.sequence + 1
        for tag in tags:
            before = self.marks.get(tag, Mark(0, 0))
            self.marks[tag] = Mark(before.hard, sequence) if soft else Mark(sequence, before.soft)
        self.advance(sequence)
        return sequence

    def forget(self, tag: str) -> None:
        """Drop a mark that covers nothing any more, and raise the floor to it."""
        self.floor = max(self.floor, self.marks.pop(tag).sequence)

    def standing(self, entry: Entry) -> Standing:
        """Whether a stored entry may be used after all purges so far."""
        return self.standing_of(entry.snapshot, key=entry.key, tags=entry.tags)

    def standing_of(self, seen: Snapshot, *, key: str, tags: tuple[str, ...]) -> Standing:
        """The same for an entry that is known by its parts."""
        now = self.snapshot
        if seen.generation != now.generation or seen.sequence > now.sequence:
            return "purged"
        if seen.sequence == now.sequence:
            return "fresh"
        standing: Standing = "fresh"
        for tag in (*tags, key_tag(key), ALL):
            mark = self.marks.get(tag)
            if mark is None:
                continue
            if mark.hard > seen.sequence:
                return "purged"
            if mark.soft > seen.sequence:
                standing = "soft_purged"
        return standing

    def admits(self, entry: Entry) -> Written:
        """Whether a new entry may be stored: nothing of it was purged, hard or soft, meanwhile."""
        seen = entry.snapshot
        if seen.generation != self.snapshot.generation or seen.sequence > self.sequence:
            return "generation"
        if seen.sequence < self.floor or self.standing(entry) != "fresh":
            return "purged"
        return "ok"


def examine(table: PurgeTable, entry: Entry | None, *, key: str, tags: Sequence[str]) -> Examined:
    """What `Store.examine` answers where the whole table is at hand."""
    asked = (*tags, *(() if entry is None else entry.tags), key_tag(key), ALL)
    marks = {tag: mark for tag in asked if (mark := table.marks.get(tag)) is not None}
    return Examined(snapshot=table.snapshot, entry=entry, marks=marks)


def table_of(examined: Examined) -> PurgeTable:
    """A table that knows of what was examined."""
    now = examined.snapshot
    table = PurgeTable(generation=now.generation, sequence=now.sequence)
    table.marks = dict(examined.marks)
    return table


def tags_of(purge: Purge) -> tuple[str, ...]:
    """Every tag that a purge moves, each once."""
    tags = [
        *purge.tags,
        *map(key_tag, purge.keys),
        *map(model_tag, purge.models),
        *map(tenant_tag, purge.tenants),
    ]
    if purge.everything:
        tags.append(ALL)
    return tuple(dict.fromkeys(tags))
