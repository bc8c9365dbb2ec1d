"""Which tokens the next step computes. Plain Python; it decides and keeps the queues.

Decodes go first, so that a long prompt never holds up running answers; what the token budget
leaves is prefill, in chunks. Sequences are served in order of arrival. When pages run out, the
last to arrive gives up its pages and waits, at the front; they are swapped out, or computed anew
later, whichever is cheaper, so it continues as if nothing had been.

A sequence begins with what it need not compute: pages of its own that were swapped out, those of
its request's first choice, or those of the prefix cache, the last of them in part.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Many

import msgspec

from engine.kv.blocks import PageAllocator
from engine.kv.moves import Copy, Move, SwapIn, SwapOut
from engine.kv.prefix import Prefix
from engine.kv.swap import CostMeter, SwapSlots, prefers_swap
from engine.sequence import Sequence

_MAX_PREPARED = 64
"""After so many pages nothing more is admitted in a step. To bring them takes as long as some
chunks of prefill."""


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """The next `num_tokens` uncomputed tokens of a sequence; its pages are there."""

    sequence: Sequence
    num_tokens: int

    @property
    def samples(self) -> bool:
        """The step gives this sequence its next token."""
        return self.num_tokens == self.sequence.num_remaining


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A step: pages to move first, in this order, and then what to compute."""

    moves: Many[Move]
    work: Many[Scheduled]


class Counters(msgspec.Struct, kw_only=True):
    """Since the start. Not frozen: they count."""

    preemptions: int = 0
    swaps: int = 0
    """Preemptions whose pages were copied."""
    prompt_tokens: int = 0
    """Of admitted requests."""
    cached_tokens: int = 0
    """Of these, found in the prefix cache."""


class _Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What a sequence need not compute: `shared` full pages, then those in `slots`, or a copy of
    the page `copied`, which is partly filled."""

    num_computed: int
    shared: Many[int]
    slots: Many[int] = ()
    copied: int | None = None


class Scheduler:
    """Holds every sequence that is not finished."""

    def __init__(
        self,
        pages: PageAllocator,
        prefix: Prefix,
        *,
        slots: SwapSlots,
        meter: CostMeter,
        page_tokens: int,
        max_batch: int,
        step_tokens: int,
        prepare: Callable[[Sequence], int] = lambda _: 0,
    ) -> None:
        """`prepare` is told of a sequence that is about to be admitted: it brings to the prefix
        cache what it can, and says how many pages. It takes the place of pages that nobody holds.
        """
        self._pages = pages
        self._prefix = prefix
        self._slots = slots
        self._meter = meter
        self._page_tokens = page_tokens
        self._prepare = prepare
        self._num_prepared = 0
        self._max_batch = max_batch
        self._step_tokens = max(step_tokens, max_batch)  # every decode finds room
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []  # in order of arrival
        self._moves: list[Move] = []
        self.counters = Counters()

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def sequences(self) -> tuple[Sequence, ...]:
        """All that are not finished."""
        return (*self._running, *self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Alone, the sequence must fit into the pool up to its last token."""
        self._waiting.append(sequence)

    def of_request(self, request_id: int) -> list[Sequence]:
        """The request's sequences that are not finished."""
        return [s for s in self.sequences() if s.request_id == request_id]

    def remove(self, sequence: Sequence) -> None:
        """Forget a finished or aborted sequence and free its pages."""
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)
        self._pages.release(sequence.sequence_id)
        self._free_slots(sequence)

    def plan(self) -> Plan:
        """The next step; nothing in it when nothing is left to do. Takes pages, may preempt."""
        self._moves = []
        self._num_prepared = 0
        planned = self._plan_decodes()
        budget = self._step_tokens - len(planned)
        for sequence in self._running:
            if budget > 0 and sequence.num_remaining > 1:
                budget -= self._chunk(sequence, budget, planned)
        while budget > 0 and self._admit():
            budget -= self._chunk(self._running[-1], budget, planned)
        assert planned or not self.sequences(), "there is work, and none of it would ever be done"
        return Plan(moves=self._moves, work=planned)

    def computed(self, item: Scheduled) -> None:
        """The step has finished: the item's keys and values are in its pages."""
        sequence = item.sequence
        sequence.num_computed += item.num_tokens
        num_full = sequence.num_kv // self._page_tokens
        for page in self._pages.table(sequence.sequence_id)[sequence.num_filled : num_full]:
            self._pages.fill(page)
        sequence.num_filled = num_full
        lost = sequence.retention.lost(sequence.num_computed)
        if lost > sequence.num_lost:
            self._lose(sequence, lost)

    def _lose(self, sequence: Sequence, lost: int) -> None:
        """So many of its tokens are gone now: give up their pages."""
        owner = sequence.sequence_id
        before = self._pages_for(sequence.num_kv)
        sequence.num_lost = lost
        first = sequence.retention.first_lost() // self._page_tokens
        self._pages.cut(owner, first, before - self._pages_for(sequence.num_kv))
        sequence.num_filled = sequence.num_kv // self._page_tokens
        # A prefill goes on with as many as it was admitted with: they are its own, and free.
        grown = self._pages.grow(owner, self._num_pages(sequence))
        assert grown, "as many were given up"

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
            if self._prefix.reserve(sequence.sequence_id, self._num_pages(sequence)):
                return True
            self._preempt(self._running[-1])
        return False

    def _num_pages(self, sequence: Sequence) -> int:
        """For all its tokens, as far as they stay."""
        held = sequence.retention.held(sequence.num_computed, len(sequence.token_ids))
        return self._pages_for(held)

    def _pages_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._page_tokens)

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._swap_out(sequence)
        if not sequence.slots:
            sequence.num_computed = sequence.num_lost = 0
        self._pages.release(sequence.sequence_id)
        self._waiting.appendleft(sequence)
        self.counters.preemptions += 1

    def _swap_out(self, sequence: Sequence) -> None:
        """Where it is cheaper and there is room."""
        num_pages = self._pages_for(sequence.num_kv)
        costs = self._meter.costs
        if not prefers_swap(costs, num_pages=num_pages, num_tokens=sequence.num_computed):
            return
        sequence.slots = self._slots.take(num_pages) or ()
        table = self._pages.table(sequence.sequence_id)
        self._moves += [
            SwapOut(page=page, slot=slot) for page, slot in zip(table, sequence.slots, strict=False)
        ]
        self.counters.swaps += bool(sequence.slots)

    def _admit(self) -> bool:
        """Move the first in the queue to the running ones, with pages for all its tokens."""
        if not self._waiting or len(self._running) >= self._max_batch:
            return False
        if self._num_prepared >= _MAX_PREPARED:
            return False  # running answers have waited long enough
        sequence = self._waiting[0]
        beginning = self._beginning(sequence)
        if beginning is None:
            return False
        if not self._has_room(sequence, beginning):
            if self._running:
                return False
            self._prefix.unpin()  # alone, it fits into whatever is not pinned
        self._begin(sequence, self._prepared(sequence, beginning))
        self._running.append(self._waiting.popleft())
        return True

    def _beginning(self, sequence: Sequence) -> _Beginning | None:
        """None: what it waits for is under way."""
        if sequence.slots:
            return self._swapped(sequence)
        leader = sequence.leader
        if leader is not None and leader in self._running and not sequence.num_output:
            return self._forked(leader)
        return self._found(sequence)

    def _found(self, sequence: Sequence) -> _Beginning:
        # The last token is always computed: the next one comes from it.
        max_tokens = len(sequence.token_ids) - 1
        shared = self._find(sequence, max_tokens=max_tokens)
        num_computed = len(shared) * self._page_tokens
        part = None
        if sequence.retention.shares:
            part = self._prefix.part(
                sequence.chain,
                sequence.token_ids,
                len(shared),
                max_tokens=max_tokens - num_computed,
            )
        if part is None:
            return _Beginning(num_computed=num_computed, shared=shared)
        return _Beginning(
            num_computed=num_computed + part.num_tokens, shared=shared, copied=part.page
        )

    def _prepared(self, sequence: Sequence, beginning: _Beginning) -> _Beginning:
        """The same, or more of it. There is room for either: as many pages as are brought need not
        be taken for what they hold."""
        missing = len(sequence.token_ids) - 1 - beginning.num_computed
        if sequence.slots or missing < self._page_tokens or not sequence.retention.shares:
            return beginning
        num_brought = self._prepare(sequence)
        self._num_prepared += num_brought
        return self._found(sequence) if num_brought else beginning

    def _swapped(self, sequence: Sequence) -> _Beginning:
        shared = self._find(sequence, max_tokens=sequence.num_kv)
        return _Beginning(
            num_computed=sequence.num_computed, shared=shared, slots=sequence.slots[len(shared) :]
        )

    def _forked(self, leader: Sequence) -> _Beginning | None:
        """All of the prompt but its last token: each choice computes that for itself."""
        num_tokens = leader.num_prompt - 1
        num_full, rest = divmod(num_tokens, self._page_tokens)
        if leader.num_computed < num_tokens or leader.num_filled < num_full:
            return None
        table = self._pages.table(leader.sequence_id)
        return _Beginning(
            num_computed=num_tokens,
            shared=table[:num_full],
            copied=table[num_full] if rest else None,
        )

    def _find(self, sequence: Sequence, *, max_tokens: int) -> list[int]:
        if not sequence.retention.shares:
            return []
        return self._prefix.find(
            sequence.chain, sequence.token_ids, max_pages=max_tokens // self._page_tokens
        )

    def _has_room(self, sequence: Sequence, beginning: _Beginning) -> bool:
        """One page for each running sequence stays free, lest the next step preempts it."""
        needed = self._num_pages(sequence) - len(beginning.shared)
        num_idle = sum(map(self._pages.is_idle, beginning.shared))
        return needed + len(self._running) <= self._pages.num_available - num_idle

    def _begin(self, sequence: Sequence, beginning: _Beginning) -> None:
        owner = sequence.sequence_id
        is_first = not sequence.num_output and not sequence.slots and sequence.leader is None
        sequence.num_computed = beginning.num_computed
        sequence.num_filled = len(beginning.shared)
        sequence.num_filed = 0
        self._pages.share(owner, beginning.shared)
        reserved = self._prefix.reserve(owner, self._num_pages(sequence))
        assert reserved, "room was there"
        own = self._pages.table(owner)[len(beginning.shared) :]
        self._moves += [
            SwapIn(slot=slot, page=page) for slot, page in zip(beginning.slots, own, strict=False)
        ]
        if beginning.copied is not None:
            # To make room, that page may have been given up just now, to this sequence even. It is
            # read before anything is written there: moves are made in order, then a step computes.
            self._moves.append(Copy(source=beginning.copied, target=own[0]))
        self._free_slots(sequence)
        if is_first and sequence.cached_tokens is None:
            sequence.cached_tokens = beginning.num_computed
            self.counters.prompt_tokens += sequence.num_prompt
            self.counters.cached_tokens += beginning.num_computed

    def _free_slots(self, sequence: Sequence) -> None:
        self._slots.give(sequence.slots)
        sequence.slots = ()

    def _chunk(self, sequence: Sequence, budget: int, planned: list[Scheduled]) -> int:
        """Plan as much of a prefill as the budget allows; returns the tokens taken."""
        reach = sequence.retention.reach(sequence.num_computed) - sequence.num_computed
        num_tokens = min(sequence.num_remaining, budget, reach)
        planned.append(Scheduled(sequence=sequence, num_tokens=num_tokens))
        return num_tokens
