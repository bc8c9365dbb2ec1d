"""Which tokens the next step computes. Plain Python; it decides and keeps the queues.

Decodes go first, so that a long prompt never holds up running answers; what the token budget
leaves is prefill, in chunks. Sequences are served in order of arrival. When pages run out, the
last to arrive gives up its pages and waits, at the front; its tokens are computed anew later, so
it continues as if nothing had been.
"""

from collections import deque

import msgspec

from engine.blocks import PageAllocator
from engine.sequence import Sequence


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """The next `num_tokens` uncomputed tokens of a sequence; its pages are there."""

    sequence: Sequence
    num_tokens: int

    @property
    def samples(self) -> bool:
        """The step gives this sequence its next token."""
        return self.num_tokens == self.sequence.num_remaining


class Scheduler:
    """Holds every sequence that is not finished."""

    def __init__(
        self, pages: PageAllocator, *, page_tokens: int, max_batch: int, step_tokens: int
    ) -> None:
        self._pages = pages
        self._page_tokens = page_tokens
        self._max_batch = max_batch
        self._step_tokens = max(step_tokens, max_batch)  # every decode finds room
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of arrival
        self.num_preemptions = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def add(self, sequence: Sequence) -> None:
        """Alone, the sequence must fit into the pool up to its last token."""
        self._waiting.append(sequence)

    def of_request(self, request_id: int) -> list[Sequence]:
        """The request's sequences that are not finished."""
        return [s for s in (*self._running, *self._waiting) if s.request_id == request_id]

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence and free its pages."""
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)
        self._pages.release(sequence.sequence_id)

    def plan(self) -> list[Scheduled]:
        """The next step; empty when nothing is left to do. Takes pages, may preempt."""
        planned = self._plan_decodes()
        budget = self._step_tokens - len(planned)
        for sequence in self._running:
            if budget > 0 and sequence.num_remaining > 1:
                budget -= self._chunk(sequence, budget, planned)
        while budget > 0 and self._admit():
            budget -= self._chunk(self._running[-1], budget, planned)
        return planned

    def _plan_decodes(self) -> list[Scheduled]:
        planned = []
        for sequence in list(self._running):
            # A page that this takes may be one that a later sequence has to give up.
            if sequence.num_remaining == 1 and self._secure_pages(sequence):
                planned.append(Scheduled(sequence=sequence, num_tokens=1))
        return planned

    def _secure_pages(self, sequence: Sequence) -> bool:
        """False when the sequence was preempted itself, now or before."""
        while sequence in self._running:
            if self._grow(sequence):
                return True
            self._preempt(self._running[-1])
        return False

    def _grow(self, sequence: Sequence) -> bool:
        needed = -(-len(sequence.token_ids) // self._page_tokens)
        return self._pages.grow(sequence.sequence_id, needed)

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._pages.release(sequence.sequence_id)
        sequence.num_computed = 0
        self._waiting.appendleft(sequence)
        self.num_preemptions += 1

    def _admit(self) -> bool:
        """Move the first in the queue to the running ones, with pages for all its tokens. One
        page for each running sequence stays free, lest the next step preempts the newcomer."""
        if not self._waiting or len(self._running) >= self._max_batch:
            return False
        sequence = self._waiting[0]
        needed = -(-len(sequence.token_ids) // self._page_tokens)
        if needed + len(self._running) > self._pages.num_free or not self._grow(sequence):
            return False
        self._running.append(self._waiting.popleft())
        return True

    def _chunk(self, sequence: Sequence, budget: int, planned: list[Scheduled]) -> int:
        """Plan as much of a prefill as the budget allows; returns the tokens taken."""
        num_tokens = min(sequence.num_remaining, budget)
        planned.append(Scheduled(sequence=sequence, num_tokens=num_tokens))
        return num_tokens
