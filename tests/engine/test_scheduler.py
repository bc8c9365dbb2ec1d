import pytest
from enginekit import Kit

from engine.answer import Answer
from engine.blocks import PageAllocator
from engine.sampling import Sampling
from engine.scheduler import Scheduled, Scheduler
from engine.sequence import Sequence

PAGE = 4


class Bench:
    """A scheduler and a model that is none: a planned step just counts."""

    def __init__(self, kit: Kit, *, num_pages: int = 16, max_batch: int = 8, step: int = 16):
        self.kit = kit
        self.pages = PageAllocator(num_pages)
        self.scheduler = Scheduler(
            self.pages, page_tokens=PAGE, max_batch=max_batch, step_tokens=step
        )
        self.count = 0

    def add(self, num_prompt: int) -> Sequence:
        self.count += 1
        sequence = Sequence(
            sequence_id=self.count, request_id=self.count, index=0, prompt_ids=[5] * num_prompt,
            max_new_tokens=99, sampling=Sampling(), answer=Answer(self.kit.tokenizer, ()),
        )  # fmt: skip
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> dict[int, int]:
        """Tokens computed by sequence id."""
        planned = self.scheduler.plan()
        for item in planned:
            self._compute(item)
        self.pages.check_integrity()
        return {item.sequence.sequence_id: item.num_tokens for item in planned}

    def _compute(self, item: Scheduled) -> None:
        sequence, samples = item.sequence, item.samples
        held = len(self.pages.table(sequence.sequence_id)) * PAGE
        assert held >= sequence.num_computed + item.num_tokens
        sequence.num_computed += item.num_tokens
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
    while bench.scheduler.num_preemptions == 0:
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
    assert bench.scheduler.num_preemptions > 0
    assert bench.pages.num_free == 7
