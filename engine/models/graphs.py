"""CUDA graphs of decode steps: at a few tokens a step, launching kernels one by one takes longer
than they do."""

import logging
from collections import Counter
from collections.abc import Callable

import msgspec
import torch

from engine.attention.spans import AttentionSpans
from engine.batch import StepBatch
from engine.kv.pool import PagePool

Compute = Callable[[StepBatch, PagePool], torch.Tensor]
"""A batch on the pool's device → logits."""

log = logging.getLogger("engine.models.graphs")


class _Captured(msgspec.Struct, frozen=True, kw_only=True):
    """`inputs` is filled before a replay, which leaves `logits`. `calls`: kernels that it runs and
    that no Python counts."""

    pool: PagePool
    inputs: StepBatch
    graph: torch.cuda.CUDAGraph
    logits: torch.Tensor
    calls: Counter[str]


class DecodeGraphs:
    """One graph for each size of batch and of page tables, powers of two; captured when first
    needed. What is filled up has no tokens, writes nothing and is cut off."""

    def __init__(self, compute: Compute, calls: Counter[str]) -> None:
        self._compute = compute
        self._calls = calls
        self._captured: dict[tuple[int, int], _Captured] = {}
        self._usable = True

    def run(self, batch: StepBatch, pool: PagePool) -> torch.Tensor | None:
        """Logits as the model computes them, valid until the next call; None for steps that are no
        plain decode, and where capturing failed."""
        if not self._usable or not is_decode(batch):
            return None
        num_seqs, num_pages = batch.spans.page_tables.shape
        size = (_power_of_two(num_seqs), _power_of_two(num_pages))
        filled = filled_up(batch, num_seqs=size[0], num_pages=size[1])
        captured = self._captured.get(size)
        if captured is None or captured.pool is not pool:
            try:
                captured = self._capture(filled, pool)
            except RuntimeError as error:  # whatever the driver says; steps run without
                log.warning("no CUDA graphs, each kernel is launched by itself: %s", error)
                self._usable = False
                return None
            self._captured[size] = captured
        for target, source in zip(captured.inputs.parts(), filled.parts(), strict=True):
            target.copy_(source)
        captured.graph.replay()
        self._calls.update(captured.calls)
        return captured.logits[:num_seqs]

    def _capture(self, batch: StepBatch, pool: PagePool) -> _Captured:
        # A first run compiles kernels and lets libraries take their memory. It computes the step
        # itself: to write the same keys and values twice changes nothing.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch left it untyped
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._compute(batch, pool)
        torch.cuda.current_stream().wait_stream(side)
        before = self._calls.copy()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self._compute(batch, pool)
        calls = self._calls - before
        self._calls.subtract(calls)
        return _Captured(pool=pool, inputs=batch, graph=graph, logits=logits, calls=calls)


def is_decode(batch: StepBatch) -> bool:
    """One token of each sequence, and the next is wanted of all."""
    num_seqs = batch.spans.kv_lens.shape[0]
    return len(batch.token_ids) == num_seqs == len(batch.sampled_rows)


def filled_up(batch: StepBatch, *, num_seqs: int, num_pages: int) -> StepBatch:
    """A decode, new, with sequences that have no tokens behind its own, and wider page tables."""
    lacking = num_seqs - len(batch.token_ids)
    tables = batch.spans.page_tables
    wider = (0, num_pages - tables.shape[1], 0, lacking)
    starts = torch.arange(num_seqs + 1, device=tables.device)

    def longer(values: torch.Tensor, fill: int = 0) -> torch.Tensor:
        return torch.nn.functional.pad(values, (0, lacking), value=fill)

    return StepBatch(
        token_ids=longer(batch.token_ids),
        positions=longer(batch.positions),
        slots=longer(batch.slots, -1),
        sampled_rows=starts[:-1].clone(),
        spans=AttentionSpans(
            page_tables=torch.nn.functional.pad(tables, wider),
            kv_lens=longer(batch.spans.kv_lens),
            query_starts=starts,
        ),
    )


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
