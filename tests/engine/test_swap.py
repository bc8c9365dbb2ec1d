"""What it costs to make room, and that nobody sees it in an answer."""

import random

import msgspec
import pytest
import torch
from enginekit import Kit, drain, write_tiny
from hypothesis import given
from hypothesis import strategies as st

from engine.engine import Engine
from engine.kv.moves import Copy, PageMover, SwapIn, SwapOut
from engine.kv.swap import CostMeter, Costs, SwapSlots, prefers_swap
from engine.models.families import load_model
from engine.process.protocol import Occupancy, Purge, Sharing
from engine.sampling import Sampling
from engine.sources.gguf import GGUFFile
from engine.text.tokenizer import tokenizer_from_gguf

NO_END = {256: -100.0, 258: -100.0}


def test_what_is_cheaper_is_chosen_for_both_ways_of_the_copy() -> None:
    costs = Costs(page_copy_s=1.0, token_compute_s=0.5)
    assert prefers_swap(costs, num_pages=2, num_tokens=9)
    assert not prefers_swap(costs, num_pages=2, num_tokens=8)
    unknown = Costs(page_copy_s=1.0, token_compute_s=0.0)
    assert not prefers_swap(unknown, num_pages=1, num_tokens=32)


def test_rates_follow_what_is_measured_and_decodes_say_nothing_of_prefill() -> None:
    meter = CostMeter(Costs(page_copy_s=0.0, token_compute_s=0.0))
    meter.computed(1, 5.0)
    assert meter.costs.token_compute_s == 0
    meter.computed(100, 1.0)
    meter.copied(4, 2.0)
    assert meter.costs == Costs(page_copy_s=0.5, token_compute_s=0.01)
    for _ in range(50):
        meter.computed(100, 2.0)
    assert meter.costs.token_compute_s == pytest.approx(0.02, rel=1e-3)
    meter.copied(0, 1.0)
    assert meter.costs.page_copy_s == 0.5


@given(st.lists(st.integers(0, 5), max_size=30))
def test_slots_are_never_lost_nor_given_out_twice(counts: list[int]) -> None:
    slots, taken = SwapSlots(8), []
    for count in counts:
        num_free = 8 - slots.num_taken
        got = slots.take(count)
        assert (got is None) == (count > num_free)
        if got is not None:
            taken.append(got)
        elif taken:
            slots.give(taken.pop(0))
        slots.check_integrity()


def test_a_page_comes_back_bit_by_bit() -> None:
    storage = torch.randint(0, 256, (4, 640), dtype=torch.uint8)
    before = storage.clone()
    mover = PageMover(storage, num_slots=2)
    mover.run([SwapOut(page=1, slot=0), Copy(source=3, target=1), SwapIn(slot=0, page=2)])
    assert torch.equal(storage, before[[0, 3, 1, 3]])


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """Its first layer sees 24 tokens; heads are long enough for groups of channels."""
    path = write_tiny(tmp_path_factory.mktemp("windowed") / "Tiny.gguf", head_dim=64).path
    file = GGUFFile(path)
    model = load_model(file, weights="fp32", max_positions=512, progress=lambda _: None)
    model.shape = msgspec.structs.replace(model.shape, windows=(24, None))
    return Kit(model, tokenizer_from_gguf(file))


def _survives(
    kit: Kit, kv_dtype: str, *, num_prompts: int, most_choices: int, max_tokens: int, kept: dict
) -> Occupancy:
    """Prompts that begin alike arrive, are aborted, purged and preempted; freed pages are poisoned.
    Whatever finishes answers as an engine without a limit does."""
    source = random.Random(6)
    begins = [[source.randrange(256) for _ in range(40)] for _ in range(2)]
    prompts = [
        [*begins[n % 2][: source.randrange(16, 40)], *(source.randrange(256) for _ in range(9))]
        for n in range(num_prompts)
    ]
    sampling = Sampling(temperature=0, max_tokens=max_tokens, logit_bias=NO_END)

    def add(engine: Engine, number: int) -> None:
        engine.add(
            number, prompts[number], sampling=sampling, num_choices=1 + number % most_choices,
            sharing=Sharing(tags=(str(number % 2),)),
        )  # fmt: skip

    roomy = kit.engine(kv_dtype=kv_dtype, page_tokens=16, num_pages=200, kv_prefix=False)
    for number in range(num_prompts):
        add(roomy, number)
    expected = {key: answer.text for key, answer in drain(roomy).items()}
    engine = kit.engine(
        kv_dtype=kv_dtype, page_tokens=16, num_pages=10, step_tokens=32, max_batch=6, **kept
    )
    waiting = list(range(num_prompts))

    def disturb() -> None:
        used = {page for page in range(10) if engine.pages.state(page).value != "free"}
        engine._pool.storage[[page for page in range(10) if page not in used]] = 0xFF
        engine._paging.slots.check_integrity()
        for _ in range(source.randrange(3)):
            if waiting:
                add(engine, waiting.pop())
        if source.random() < 0.04:
            engine.abort(source.randrange(num_prompts))
        if source.random() < 0.04:
            engine.purge(Purge(tags=(str(source.randrange(2)),)))

    while not engine.busy:
        disturb()
    answers = {key: answer.text for key, answer in drain(engine, each_step=disturb).items()}
    assert len(answers) >= 8
    assert answers == {key: expected[key] for key in answers}
    now = engine.occupancy()
    assert (now.preemptions > 0, now.swaps > 0) == (True, "kv_swap_bytes" not in kept)
    assert now.free_pages == 10
    return now


@pytest.mark.parametrize(
    ("kv_dtype", "kept"),
    [
        ("fp32", {}), ("int8", {}), ("int8", {"kv_swap_bytes": 0}), ("int8", {"kv_prefix": False}),
    ],
)  # fmt: skip
def test_share_evict_abort_purge_and_swap_at_a_full_pool_change_no_answer(
    tiny: Kit, kv_dtype: str, kept: dict
) -> None:
    now = _survives(tiny, kv_dtype, num_prompts=18, most_choices=1, max_tokens=40, kept=kept)
    assert (now.cached_tokens > 0) == ("kv_prefix" not in kept)


@pytest.mark.parametrize("kept", [{}, {"kv_swap_bytes": 0}])
def test_nor_do_they_with_windows_groups_of_channels_and_several_choices(
    windowed: Kit, kept: dict
) -> None:
    _survives(windowed, "int8-hq", num_prompts=12, most_choices=2, max_tokens=32, kept=kept)
