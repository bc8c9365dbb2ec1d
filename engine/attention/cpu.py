"""Attention on the CPU: over INT8 pages the C++ kernel, else numba; over all others torch."""

from collections import Counter

import msgspec
import torch
from torch.profiler import record_function

from engine.attention.reference import attend
from engine.attention.spans import Attend, AttentionSpans
from engine.kv.pages import PageLayout
from engine.kv.pool import LayerPages
from engine.phases import ATTENTION


class TiledAttention(msgspec.Struct, frozen=True, kw_only=True):
    """What reads tiled pages as they are, and the name that it is counted under. `grouped`: also
    those that have several scales for a vector."""

    name: str
    attend: Attend
    grouped: bool = False

    def reads(self, layout: PageLayout) -> bool:
        return layout.tiled and (self.grouped or layout.num_groups == 1)


class CPUAttention:
    """An `Attend`. `calls` counts what served, so that nothing falls back in silence."""

    def __init__(self, tiled: TiledAttention | None, calls: Counter[str]) -> None:
        self._tiled = tiled
        self._calls = calls

    def __call__(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor:
        if self._tiled is not None and self._tiled.reads(pages.layout):
            self._calls[self._tiled.name] += 1
            return self._tiled.attend(queries, pages, spans)
        self._calls["torch"] += 1
        with record_function(ATTENTION):
            return attend(queries, pages, spans)
