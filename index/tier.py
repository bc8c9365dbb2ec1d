"""Entries in memory, bounded in bytes: the whole of a memory store, the front of another one."""

from collections.abc import Iterator

import msgspec

from index.entry import Entry
from index.eviction import Ranked, Ranking, worth
from index.purges import PurgeTable, Standing

MAX_SHARE = 4
"""No entry may take more than this part (a quarter) of the bound: it would push out too many."""


class Held(msgspec.Struct, kw_only=True, eq=False):
    """An entry in memory. `change` is the number of the change that put it into its store."""

    entry: Entry
    change: int
    size_bytes: int
    ranked: Ranked
    checked: int
    """S of the last purge that it was compared with and found untouched."""

    def standing(self, purges: PurgeTable) -> Standing:
        """See `PurgeTable.standing`; free of cost while no purge comes."""
        sequence = purges.snapshot.sequence
        if self.checked == sequence:
            return "fresh"
        standing = purges.standing(self.entry)
        if standing == "fresh":
            self.checked = sequence
        return standing


class Tier:
    """Entries by key, in the order in which they were put in. Evicts by worth."""

    def __init__(self, *, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.evictions = 0
        self._held: dict[str, Held] = {}
        self._ranking = Ranking()

    def __len__(self) -> int:
        return len(self._held)

    def fits(self, entry: Entry) -> bool:
        """False for an entry that is too large to be held at all."""
        return entry.size_bytes() * MAX_SHARE <= self.max_bytes

    def get(self, key: str) -> Held | None:
        """What is held under a key. This is not a use: see `touch`."""
        return self._held.get(key)

    def touch(self, held: Held) -> None:
        """The entry was served."""
        self._ranking.touch(held.ranked)

    def put(self, entry: Entry, *, change: int) -> list[Held]:
        """Hold an entry that `fits`, in place of the one under its key; what had to go for it."""
        before = self.drop(entry.key)
        size_bytes = entry.size_bytes()
        evicted = list(self._make_room(size_bytes))
        self._held[entry.key] = Held(
            entry=entry,
            change=change,
            size_bytes=size_bytes,
            ranked=self._ranking.add(
                entry.key,
                worth=worth(entry, size_bytes=size_bytes),
                uses=before.ranked.uses if before else 1,
            ),
            checked=entry.snapshot.sequence,  # a purge after it is looked for at the first hit
        )
        self.used_bytes += size_bytes
        self.evictions += len(evicted)
        return evicted

    def drop(self, key: str) -> Held | None:
        """Let one go; what was held."""
        held = self._held.pop(key, None)
        if held is not None:
            self.used_bytes -= held.size_bytes
            self._ranking.remove(held.ranked)
        return held

    def clear(self) -> None:
        """Let all go."""
        self._held.clear()
        self._ranking = Ranking()
        self.used_bytes = 0

    def oldest_first(self) -> list[Held]:
        """All that is held, in the order in which it was put in; safe to change the tier over."""
        return list(self._held.values())

    def newest_first(self) -> Iterator[Held]:
        """The same, backwards; the tier must not change meanwhile."""
        return reversed(self._held.values())

    def check_integrity(self) -> None:
        """AssertionError unless sizes and ranks agree with what is held."""
        assert self.used_bytes == sum(held.size_bytes for held in self._held.values())
        assert self.used_bytes <= self.max_bytes
        for key, held in self._held.items():
            assert held.entry.key == key == held.ranked.key
            assert not held.ranked.gone
        self._ranking.check_integrity(len(self._held))

    def _make_room(self, size_bytes: int) -> Iterator[Held]:
        while self.used_bytes + size_bytes > self.max_bytes:
            held = self._held.pop(self._ranking.victim().key)
            self.used_bytes -= held.size_bytes
            yield held
