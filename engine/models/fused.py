"""A decoder layer in one call of the kernels, where its weights and its pages are int8."""

import ctypes
from collections import Counter

import torch

from engine.kernels.bindings import Kernels, LayerStruct, NormedLinearStruct
from engine.kv.pool import LayerPages
from engine.models.layers import DecoderLayer, RMSNorm
from engine.models.linear import Int8Linear
from engine.models.step import LayerStep


class FusedLayer:
    """Computes what `plain` computes, from the same weights. `plain` serves other pages, and is
    the reference."""

    def __init__(
        self,
        plain: DecoderLayer,
        *,
        attention_norm: RMSNorm,
        qkv: Int8Linear,
        output: Int8Linear,
        mlp_norm: RMSNorm,
        gate_up: Int8Linear,
        down: Int8Linear,
        num_heads: int,
        kernels: Kernels,
        calls: Counter[str],
    ) -> None:
        """`calls` counts under `cpp`, as attention by itself does."""
        self._plain = plain
        self._kernels = kernels
        self._calls = calls
        # They own the memory that the struct points to.
        self._parts = (attention_norm.weight, qkv, output, mlp_norm.weight, gate_up, down)
        self._struct = LayerStruct(
            NormedLinearStruct(attention_norm.weight.data_ptr(), ctypes.pointer(qkv.struct)),
            ctypes.pointer(output.struct),
            NormedLinearStruct(mlp_norm.weight.data_ptr(), ctypes.pointer(gate_up.struct)),
            ctypes.pointer(down.struct),
            num_heads,
            ctypes.c_float(attention_norm.eps),
        )

    def __call__(self, hidden: torch.Tensor, pages: LayerPages, step: LayerStep) -> torch.Tensor:
        """As `DecoderLayer`; `hidden` is overwritten."""
        if not pages.layout.tiled:
            return self._plain(hidden, pages, step)
        self._calls["cpp"] += 1
        self._kernels.layer(self._struct, hidden, pages, step)
        return hidden

    def queries(self, hidden: torch.Tensor, pages: LayerPages, step: LayerStep) -> torch.Tensor:
        """As `DecoderLayer`'s."""
        return self._plain.queries(hidden, pages, step)
