from collections.abc import Callable

import pytest
from enginekit import Kit

from engine.kv.blocks import PageAllocator
from engine.kv.moves import Copy, Move, SwapIn, SwapOut
from engine.kv.pagehash import PageChain
from engine.kv.prefix import NoPrefix
from engine.kv.swap import CostMeter, Costs, SwapSlots
from engine.sampling import Sampling
from engine.scheduler import Scheduled, Scheduler
from engine.sequence import Sequence
from engine.text.answer import Answer

PAGE = 4
SWAP_IS_CHEAP = Costs(page_copy_s=1e-6, token_compute_s=1.0)
SWAP_IS_DEAR = Costs(page_copy_s=1.0, token_compute_s=1e-6)


class Bench:
    """A scheduler and a model that is none: a planned step just counts."""

    def __init__(
        self, kit: Kit, *, num_pages: int = 16, max_batch: int = 8, step: int = 16,
        num_slots: int = 0, costs: Costs = SWAP_IS_CHEAP,
        prepare: Callable[[Sequence], int] = lambda _: 0,
    ) -> None:  # fmt: skip
        self.kit = kit
        self.pages = PageAllocator(num_pages)
        self.slots = SwapSlots(num_slots)
        self.scheduler = Scheduler(
            self.pages, NoPrefix(self.pages), slots=self.slots, meter=CostMeter(costs),
            page_tokens=PAGE, max_batch=max_batch, step_tokens=step, prepare=prepare,
        )  # fmt: skip
        self.moves: list[Move] = []
        self.count = 0

    def add(self, num_prompt: int, *, leader: Sequence | None = None) -> Sequence:
        self.count += 1
        sequence = Sequence(
            sequence_id=self.count, request_id=self.count, index=0, prompt_ids=[5] * num_prompt,
            max_new_tokens=99, sampling=Sampling(), answer=Answer(self.kit.tokenizer, ()),
            chain=PageChain(b"", page_tokens=PAGE), leader=leader,
        )  # fmt: skip
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> dict[int, int]:
        """Tokens computed by sequence id."""
        plan = self.scheduler.plan()
        self.moves = list(plan.moves)
        for item in plan.work:
            self._compute(item)
        self.pages.check_integrity()
        self.slots.check_integrity()
        return {item.sequence.sequence_id: item.num_tokens for item in plan.work}

    def _compute(self, item: Scheduled) -> None:
        sequence, samples = item.sequence, item.samples
        held = len(self.pages.table(sequence.sequence_id)) * PAGE
        assert held >= sequence.num_computed + item.num_tokens
        self.scheduler.computed(item)
        if samples:
            sequence.token_ids.append(6)


@pytest.fixture
def bench(tiny: Kit) -> Bench:
    return Bench(tiny)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget(bench: Bench) -> None:
    bench.add(40)
    assert [bench.step() for _ in range(4)] == [{1: 16}, {1: 16}, {1: 8}, {1: 1}]


def test_decodes_go_first_and_prefill_gets_the_rest(bench: Bench) -> None:
    bench.add(3)
    bench.add(3)
    bench.step()
    bench.add(30)
    assert bench.step() == {1: 1, 2: 1, 3: 14}


def test_short_prompts_share_a_step(bench: Bench) -> None:
    for _ in range(3):
        bench.add(5)
    assert bench.step() == {1: 5, 2: 5, 3: 5}


def test_no_more_than_max_batch_run(tiny: Kit) -> None:
    bench = Bench(tiny, max_batch=2)
    for _ in range(3):
        bench.add(2)
    assert set(bench.step()) == {1, 2}
    assert bench.scheduler.num_waiting == 1


def test_a_prompt_waits_for_its_pages_and_nobody_overtakes_it(tiny: Kit) -> None:
    bench = Bench(tiny, num_pages=8)
    first = bench.add(20)
    bench.add(20)
    bench.add(1)
    bench.step()
    assert set(bench.step()) == {1}
    bench.scheduler.remove(first)
    assert set(bench.step()) == {2}


def test_when_pages_run_out_the_last_in_starts_anew_later(tiny: Kit) -> None:
    bench = Bench(tiny, num_pages=6)
    first, second = bench.add(8), bench.add(7)
    while bench.scheduler.counters.preemptions == 0:
        bench.step()
    assert second.num_computed == 0
    assert len(second.token_ids) > 7, "its answer so far is kept"
    assert bench.pages.table(second.sequence_id) == []
    assert bench.pages.table(first.sequence_id)
    bench.scheduler.remove(first)
    assert bench.step() == {2: len(second.token_ids) - 1}, "one token came with this step"


def test_a_removed_sequence_frees_its_pages_wherever_it_was(bench: Bench) -> None:
    running = bench.add(9)
    bench.step()
    waiting = bench.add(100)
    bench.scheduler.remove(running)
    bench.scheduler.remove(waiting)
    assert bench.pages.num_free == 16
    assert bench.step() == {}


def test_a_tight_pool_serves_everyone_in_the_end(tiny: Kit) -> None:
    bench = Bench(tiny, num_pages=7, step=8)
    wanted = {bench.add(n): n + 12 for n in (3, 9, 1, 14, 6)}
    for _ in range(1000):
        bench.step()
        for sequence, length in list(wanted.items()):
            if len(sequence.token_ids) >= length:
                bench.scheduler.remove(sequence)
                del wanted[sequence]
        if not wanted:
            break
    assert not wanted
    assert bench.scheduler.counters.preemptions > 0
    assert bench.pages.num_free == 7


def test_pages_that_are_cheap_to_copy_are_swapped_out_and_back(tiny: Kit) -> None:
    bench = Bench(tiny, num_pages=6, num_slots=8)
    first, second = bench.add(8), bench.add(7)
    while bench.scheduler.counters.preemptions == 0:
        bench.step()
    computed = second.num_computed
    assert computed == len(second.token_ids) - 1, "only its newest token is to be computed"
    assert [type(move) for move in bench.moves] == [SwapOut] * len(second.slots)
    slots = second.slots
    bench.scheduler.remove(first)
    assert bench.step() == {2: 1}
    assert [(move.slot, type(move)) for move in bench.moves] == [(slot, SwapIn) for slot in slots]
    assert [move.page for move in bench.moves] == bench.pages.table(2)[: len(slots)]
    assert bench.slots.num_taken == 0


@pytest.mark.parametrize(
    "fields", [{"num_slots": 8, "costs": SWAP_IS_DEAR}, {"num_slots": 1}, {"num_slots": 0}]
)
def test_pages_that_are_dear_to_copy_or_find_no_room_are_computed_anew(
    tiny: Kit, fields: dict
) -> None:
    bench = Bench(tiny, num_pages=6, **fields)
    bench.add(8)
    second = bench.add(7)
    while bench.scheduler.counters.preemptions == 0:
        bench.step()
    assert (second.num_computed, second.slots, bench.moves) == (0, (), [])


def test_a_swapped_sequence_that_is_removed_gives_its_slots_back(tiny: Kit) -> None:
    bench = Bench(tiny, num_pages=6, num_slots=8)
    bench.add(8)
    second = bench.add(7)
    while not second.slots:
        bench.step()
    bench.scheduler.remove(second)
    assert bench.slots.num_taken == 0


@pytest.mark.parametrize("num_prompt", [1, 4, 5, 6, 8, 9, 30])
def test_a_second_choice_computes_the_last_token_of_the_prompt_only(
    bench: Bench, num_prompt: int
) -> None:
    first = bench.add(num_prompt)
    second = bench.add(num_prompt, leader=first)
    third = bench.add(num_prompt, leader=first)
    steps = [bench.step() for _ in range(4)]
    computed = {number: sum(step.get(number, 0) for step in steps) for number in (2, 3)}
    assert (
        computed[2] - (len(second.token_ids) - num_prompt)
        == 0
        == computed[3] - (len(third.token_ids) - num_prompt)
    )
    num_full = (num_prompt - 1) // PAGE
    tables = [bench.pages.table(number) for number in (1, 2, 3)]
    assert tables[0][:num_full] == tables[1][:num_full] == tables[2][:num_full]
    rest = [page for table in tables for page in table[num_full:]]
    assert len(set(rest)) == len(rest), "what is written belongs to one"


def test_the_partly_filled_page_of_a_prompt_is_copied_for_each_choice(bench: Bench) -> None:
    first = bench.add(6)
    bench.add(6, leader=first)
    bench.step()
    bench.step()
    source, target = bench.pages.table(1)[1], bench.pages.table(2)[1]
    assert bench.moves == [Copy(source=source, target=target)]


def test_a_second_choice_begins_anew_when_the_first_has_gone(bench: Bench) -> None:
    first = bench.add(6)
    second = bench.add(6, leader=first)
    bench.scheduler.remove(first)
    assert bench.step() == {2: 6}
    assert second.num_computed == 6


def test_work_that_no_step_would_ever_do_is_a_fault_not_a_standstill(tiny: Kit) -> None:
    bench = Bench(tiny)
    sequence = bench.add(3)
    bench.step()
    sequence.num_computed = len(sequence.token_ids)  # nobody has given it its next token
    with pytest.raises(AssertionError, match="none of it"):
        bench.step()


def test_the_disk_is_asked_for_who_is_admitted_and_who_finds_no_room_waits_unasked(
    tiny: Kit,
) -> None:
    asked: list[int] = []
    bench = Bench(tiny, num_pages=4, prepare=lambda s: asked.append(s.sequence_id) or 0)
    bench.add(8)
    bench.add(12)
    for _ in range(3):
        bench.step()
    assert asked == [1]


def test_a_long_restore_holds_up_a_step_once(tiny: Kit) -> None:
    """Each brings more than a step may: they are admitted one after the other."""
    bench = Bench(tiny, prepare=lambda _: 64)
    for _ in range(3):
        bench.add(5)
    running = []
    for _ in range(3):
        bench.step()
        running.append(bench.scheduler.num_running)
    assert running == [1, 2, 3]
