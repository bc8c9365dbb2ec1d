"""All that may happen to a sequence, at random and at once: forks, hits, preemption, swap, aborts,
purges, windows, dropping, restarts with pages on disk. Whatever is answered is, bit by bit, what a
fresh engine answers to the request alone: the kernels' results depend on no company."""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from enginekit import Kit, write_tiny
from test_archive import NO_END, PAGE, at
from test_shelf import end

from engine.engine import Engine
from engine.kernels.bindings import Kernels
from engine.kv.swap import Costs
from engine.longcontext import LongContext
from engine.models.families import load_model
from engine.process.protocol import Delta, Finished, Purge, Sharing
from engine.sampling import Sampling
from engine.sources.gguf import GGUFFile
from engine.text.tokenizer import tokenizer_from_gguf

NUM_PAGES = 13
MOST_TOKENS = 9 * PAGE
MOST_AT_ONCE = 10
STRANGER = 10**6
"""Holds pages that nobody else can have."""
TAGS = "ab"
LONG_CONTEXTS = (
    *[None] * 5,
    LongContext(mode="window", sinks=0, window=32),
    LongContext(mode="window", sinks=4, window=48),
    LongContext(mode="drop", sinks=4, keep=48),
)
EVENTS = ("preemptions", "swaps", "cached_tokens", "restored_tokens")
Said = dict[tuple[int, int], list[tuple[bytes, float]]]
"""Tokens with their log-probabilities, by request and choice."""


class Asked(NamedTuple):
    prompt_ids: list[int]
    sampling: Sampling
    num_choices: int
    long_context: LongContext | None

    def of(self, engine: Engine, number: int, sharing: Sharing) -> None:
        engine.add(
            number, self.prompt_ids, sampling=self.sampling, num_choices=self.num_choices,
            long_context=self.long_context, sharing=sharing,
        )  # fmt: skip


def _step(engine: Engine, said: Said) -> Iterator[tuple[int, int]]:
    """Those that finished."""
    for event in engine.step():
        match event:
            case Delta():
                chosen = said.setdefault((event.request_id, event.index), [])
                chosen += [(one.chosen.token, one.chosen.logprob) for one in event.logprobs]
            case Finished():
                yield event.request_id, event.index
            case _:
                pytest.fail(str(event))


class Interleaving:
    """One course of events, the same for a seed."""

    def __init__(self, kit: Kit, path: Path, *, seed: int) -> None:
        self._kit = kit
        self._path = path
        self._source = random.Random(seed)
        self._begins = [self._tokens(50) for _ in range(2)]
        self._purges = 0
        self._engine = self._started()
        self.asked: dict[int, Asked] = {}
        self.said: Said = {}
        self.finished: set[tuple[int, int]] = set()
        self.events: Counter[str] = Counter()

    def run(self, num_requests: int) -> None:
        while len(self.asked) < num_requests or self._engine.busy:
            is_idle = len(self._engine._scheduler.sequences()) < MOST_AT_ONCE
            if is_idle and len(self.asked) < num_requests and self._source.random() < 0.5:
                self._ask()
            self.finished.update(_step(self._engine, self.said))
            self._disturb()
        self._end()

    def _started(self) -> Engine:
        return self._kit.engine(
            kv_dtype="int8", page_tokens=PAGE, num_pages=NUM_PAGES, max_batch=6,
            step_tokens=6, kv_disk=str(self._path),
        )  # fmt: skip

    def _tokens(self, count: int) -> list[int]:
        return [self._source.randrange(256) for _ in range(count)]

    def _ask(self) -> None:
        choose = self._source.choice
        begin = choose(self._begins)[: choose([0, 15, 17, 33, 50, 50])]
        prompt_ids = [*begin, *self._tokens(choose([1, 1, 2, 70]))]
        sampling = Sampling(
            temperature=choose([0.0, 1.0]), seed=choose(range(9)), top_logprobs=0,
            max_tokens=min(choose([1, 30, 60]), MOST_TOKENS - len(prompt_ids)), logit_bias=NO_END,
        )  # fmt: skip
        asked = Asked(prompt_ids, sampling, choose([1, 1, 2, 3]), choose(LONG_CONTEXTS))
        number = len(self.asked)
        self.asked[number] = asked
        asked.of(self._engine, number, Sharing(tags=(choose(TAGS),), as_of=at(self._purges)))

    def _disturb(self) -> None:
        engine, chance = self._engine, self._source.random
        engine.pages.check_integrity()
        engine._paging.slots.check_integrity()
        waits = [one for one in engine._scheduler.sequences() if one.slots]
        self.events["swapped in prefill"] += any(one.num_computed < one.num_prompt for one in waits)
        unused = [page for page in range(NUM_PAGES) if engine.pages.state(page).value == "free"]
        engine._pool.storage[unused] = 0xFF
        swapping = chance() < 0.5
        engine._paging.meter.costs = Costs(page_copy_s=not swapping, token_compute_s=swapping)
        self._starve()
        if chance() < 0.01:
            engine.abort(self._source.choice(range(len(self.asked) or 1)))
        if chance() < 0.01:
            self._purges += 1
            engine.purge(Purge(tags=(self._source.choice(TAGS),), moment=at(self._purges)))
        if chance() < 0.005:
            self._end()
            self._engine = self._started()

    def _starve(self) -> None:
        """For some steps all free pages are gone, so that any sequence may have to make room."""
        pages = self._engine.pages
        pages.release(STRANGER)
        if self._engine._scheduler.num_running > 1 and self._source.random() < 0.5:
            assert pages.grow(STRANGER, pages.num_free)

    def _end(self) -> None:
        """What is running is lost, as when the process dies."""
        now = self._engine.occupancy()
        self.events.update({event: getattr(now, event) for event in EVENTS})
        end(self._engine)


@pytest.fixture(scope="module")
def kit(kernels: Kernels, tmp_path_factory: pytest.TempPathFactory) -> Kit:
    """Its first layer sees 24 tokens."""
    path = write_tiny(tmp_path_factory.mktemp("interleavings") / "Tiny.gguf", head_dim=64).path
    file = GGUFFile(path)
    model = load_model(
        file, weights="int8", max_positions=512, progress=lambda _: None, kernels=kernels
    )
    model.shape = msgspec.structs.replace(model.shape, windows=(24, None))
    return Kit(model, tokenizer_from_gguf(file))


def _alone(engine: Engine, number: int, asked: Asked) -> Said:
    asked.of(engine, number, Sharing())
    said: Said = {}
    while engine.busy:
        list(_step(engine, said))
    return said


def test_whatever_happens_an_answer_is_bit_by_bit_what_it_is_alone(
    kit: Kit, tmp_path: Path
) -> None:
    course = Interleaving(kit, tmp_path / "pages", seed=21)
    course.run(num_requests=40)
    assert len(course.finished) > 30
    assert all(course.events[event] for event in (*EVENTS, "swapped in prefill")), course.events
    roomy = kit.engine(kv_dtype="int8", page_tokens=PAGE, kv_prefix=False, step_tokens=4096)
    for number in {number for number, _ in course.finished}:
        alone = _alone(roomy, number, course.asked[number])
        for key in course.finished & alone.keys():
            assert course.said[key] == alone[key], (key, course.asked[number])
