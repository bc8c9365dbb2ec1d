"""Preemption: what a sequence that has to make room costs, and where its pages go meanwhile.

Plain bookkeeping; the bytes are moved by `engine.kv.moves`.
"""

import msgspec

_SMOOTHING = 0.25
"""Share of the newest measurement in a rate."""
_PREFILL_TOKENS = 16
"""Steps with fewer tokens say what decoding costs, not what computing a prompt again would."""


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    page_copy_s: float
    """One way."""
    token_compute_s: float
    """As a part of a prefill."""


def prefers_swap(costs: Costs, *, num_pages: int, num_tokens: int) -> bool:
    """Whether copying the pages out and in again is cheaper than computing their tokens anew."""
    return 2 * num_pages * costs.page_copy_s < num_tokens * costs.token_compute_s


class SwapSlots:
    """Places for pages in the memory of the host."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))
        self._taken: set[int] = set()

    @property
    def num_taken(self) -> int:
        return len(self._taken)

    def take(self, count: int) -> tuple[int, ...] | None:
        """None, and nothing done, when too few are free."""
        if count > len(self._free):
            return None
        slots = tuple(self._free.pop() for _ in range(count))
        self._taken.update(slots)
        return slots

    def give(self, slots: tuple[int, ...]) -> None:
        """Back, each once."""
        self._taken.difference_update(slots)
        self._free += reversed(slots)

    def check_integrity(self) -> None:
        """Each slot is free or taken, once."""
        assert sorted([*self._free, *self._taken]) == list(range(self._num_slots)), "slots lost"


class CostMeter:
    """Costs as they are measured while the engine runs."""

    def __init__(self, costs: Costs) -> None:
        """`costs`: until there is better to know."""
        self.costs = costs

    def copied(self, num_pages: int, took_s: float) -> None:
        """So many pages were moved, one way."""
        if num_pages:
            page_s = _smooth(self.costs.page_copy_s, took_s / num_pages)
            self.costs = msgspec.structs.replace(self.costs, page_copy_s=page_s)

    def computed(self, num_tokens: int, took_s: float) -> None:
        """A step took so long."""
        if num_tokens >= _PREFILL_TOKENS:
            token_s = _smooth(self.costs.token_compute_s, took_s / num_tokens)
            self.costs = msgspec.structs.replace(self.costs, token_compute_s=token_s)


def _smooth(before: float, now: float) -> float:
    return now if before == 0 else before + _SMOOTHING * (now - before)
