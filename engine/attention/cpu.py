"""Attention on the CPU: the C++ kernel over INT8 pages, torch over all others."""

from collections import Counter

import torch

from engine.attention.reference import attend
from engine.attention.spans import AttentionSpans
from engine.kernels.library import Kernels
from engine.pool import LayerPages


class CPUAttention:
    """An `Attend`. `calls` counts what served, so that nothing falls back in silence."""

    def __init__(self, kernels: Kernels | None, calls: Counter[str]) -> None:
        self._kernels = kernels
        self._calls = calls

    def __call__(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor:
        if self._kernels is not None and pages.layout.tiled:
            self._calls["cpp"] += 1
            return self._kernels.attend(queries, pages, spans)
        self._calls["torch"] += 1
        return attend(queries, pages, spans)
