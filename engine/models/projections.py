"""Makes a model's linear layers, all of one type, which may be measured here."""

import math
import time

import torch

from engine.config import ChosenDtype
from engine.kernels.bindings import Kernels
from engine.memory import Arena
from engine.models.layers import Linear
from engine.models.linear import Int8Linear

TORCH_DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}
"""Of what torch computes; with int8, only the embedding is left to it."""
_PROBE_RUNS = 8
_PROBE_TOKENS = 16


class Projections:
    """`int8_layers` are those made so far; they share memory."""

    def __init__(self, weights: ChosenDtype, kernels: Kernels | None) -> None:
        """int8 needs `kernels`."""
        self.weights = weights
        self.int8_layers: list[Int8Linear] = []
        self._kernels = kernels
        self._arena = Arena()

    def make(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Linear | Int8Linear:
        """`weight` float32 [num_outputs, num_inputs], `bias` float32 [num_outputs]."""
        if self.weights == "int8":
            assert self._kernels is not None
            layer = Int8Linear(weight, bias, kernels=self._kernels, arena=self._arena)
            self.int8_layers.append(layer)
            return layer
        return Linear(weight.to(TORCH_DTYPE[self.weights]), bias)


@torch.inference_mode()
def faster_dtype(matrices: list[torch.Tensor]) -> ChosenDtype:
    """Times a decode and a short prefill through some of the model's own matrices. Types take
    turns and the best run counts, so that what else the machine does weighs little."""
    dtypes = (torch.float32, torch.bfloat16)
    layers = {dtype: [Linear(matrix.to(dtype)) for matrix in matrices] for dtype in dtypes}
    total_s = dict.fromkeys(dtypes, 0.0)
    for num_tokens in (1, _PROBE_TOKENS):
        inputs = [torch.ones(num_tokens, matrix.shape[1]) for matrix in matrices]
        best_s = dict.fromkeys(dtypes, math.inf)
        for dtype in dtypes * _PROBE_RUNS:
            started = time.perf_counter()
            for layer, values in zip(layers[dtype], inputs, strict=True):
                layer(values)
            best_s[dtype] = min(best_s[dtype], time.perf_counter() - started)
        for dtype in dtypes:
            total_s[dtype] += best_s[dtype]
    return "fp32" if total_s[torch.float32] < total_s[torch.bfloat16] else "bf16"
