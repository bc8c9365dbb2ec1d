"""What to evict: the entry that is worth least for the room that it takes.

Greedy-Dual-Size-Frequency (Cherkasova 1998; Cao and Irani 1997): an entry's rank is
L + uses * cost / size, where L, the inflation, is the rank of what was evicted last. An entry that
is not used keeps its rank while L rises past it, so what was popular once does not stay forever.
Uses count up to a limit: without it, what was popular stays too long (tests/benchmark/eviction.py).
"""

import heapq
import itertools

import msgspec

from index.entry import Entry

OUTPUT_WEIGHT = 4.0
"""Price lists ask about four times as much for an output token as for an input token."""
TOKENS_PER_SECOND = 50.0
"""What a second of waiting is worth, in input tokens."""

MAX_USES = 8
"""Further uses keep an entry's rank up with L, but lift it no higher above."""


def rank(*, inflation: float, uses: int, worth: float) -> float:
    """The rank of an entry that was used at this moment, for the `uses`-th time."""
    return inflation + min(uses, MAX_USES) * worth


def worth(entry: Entry, *, size_bytes: int) -> float:
    """What one more use of an entry saves for each KiB that it takes, in input tokens."""
    tokens = entry.input_tokens + OUTPUT_WEIGHT * entry.output_tokens
    seconds = entry.latency_ms / 1000
    return (1.0 + tokens + TOKENS_PER_SECOND * seconds) * 1024 / size_bytes


class Ranked(msgspec.Struct, kw_only=True, eq=False):
    """An entry in a `Ranking`. Mutable: a hit touches it without a look-up."""

    key: str
    worth: float
    uses: int
    rank: float
    gone: bool = False


class Ranking:
    """Ranks of the entries in memory. O(1) for a use, amortised O(log n) for the rest.

    The heap is lazy: an item keeps the rank that it was pushed with, which is never above the
    entry's own; `victim` pushes an item that has risen meanwhile back. Ranks only rise.
    """

    def __init__(self) -> None:
        self.inflation = 0.0
        self._heap: list[tuple[float, int, Ranked]] = []
        self._ties = itertools.count()
        self._alive = 0

    def add(self, key: str, *, worth: float, uses: int = 1) -> Ranked:
        """Rank a new entry. `uses` above 1: what is known of its popularity."""
        ranked = Ranked(key=key, worth=worth, uses=uses, rank=self._rank(uses, worth))
        self._alive += 1
        self._push(ranked)
        return ranked

    def touch(self, ranked: Ranked) -> None:
        """The entry was used."""
        ranked.uses += 1
        ranked.rank = rank(inflation=self.inflation, uses=ranked.uses, worth=ranked.worth)

    def remove(self, ranked: Ranked) -> None:
        """The entry is gone for another reason than `victim`."""
        ranked.gone = True
        self._alive -= 1
        if len(self._heap) > 2 * self._alive + 64:
            self._heap = [item for item in self._heap if not item[2].gone]
            heapq.heapify(self._heap)

    def victim(self) -> Ranked:
        """Take out the entry of least rank and raise the inflation to it. There must be one."""
        while True:
            pushed_rank, _, ranked = heapq.heappop(self._heap)
            if ranked.gone:
                continue
            if ranked.rank > pushed_rank:
                self._push(ranked)
                continue
            ranked.gone = True
            self._alive -= 1
            self.inflation = ranked.rank
            return ranked

    def check_integrity(self, num_entries: int) -> None:
        """AssertionError unless exactly `num_entries` are ranked, each once."""
        alive = [(pushed, ranked) for pushed, _, ranked in self._heap if not ranked.gone]
        assert len(alive) == self._alive == num_entries
        assert len({id(ranked) for _, ranked in alive}) == num_entries
        assert all(pushed <= ranked.rank for pushed, ranked in alive)

    def _rank(self, uses: int, worth: float) -> float:
        return rank(inflation=self.inflation, uses=uses, worth=worth)

    def _push(self, ranked: Ranked) -> None:
        heapq.heappush(self._heap, (ranked.rank, next(self._ties), ranked))
