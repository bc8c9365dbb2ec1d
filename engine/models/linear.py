"""Linear layers with int8 weights, in groups of 32 inputs.

Weights: scale * code + minimum, fp16 both, codes 0 … 255. Where the file has 4 bits with a scale
and a minimum (Q4_1), each group's 16 levels fall on codes, and almost nothing is lost.

Inputs are rounded to int8 too, each group of 32 with a float scale of its own. A few channels of a
model are louder than all others, for any token; what is lost in their groups is most of what is
lost. So these groups, found by watching a short text pass, are rounded to 16 bits.

Products are summed exactly within a group, in float32 over groups, in the same order whatever the
batch: a token's result does not depend on who is computed beside it.
"""

import math

import msgspec
import torch
from torch.nn.functional import pad

from engine.kernels.bindings import Kernels, LinearStruct
from engine.memory import Arena

GROUP = 32
_MAX_CODE = 255
_MAX_INPUT_CODE = 127
_TILE_OUTPUTS = 32
_TILES_AT_ONCE = 64
"""Rounding takes several times the memory of what it rounds; a vocabulary is large."""
_CODES_END = GROUP * _TILE_OUTPUTS
_SCALES_END = _CODES_END + 2 * _TILE_OUTPUTS
_BLOCK_BYTES = _SCALES_END + 2 * _TILE_OUTPUTS


class Loudness(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of inputs are rounded to 16 bits where rounding them to 8 would add more than so many
    times the noise that it adds in the median group. Where noise comes from all groups alike, that
    takes none."""

    max_noise: float


LOUDNESS = Loudness(max_noise=1.0)
"""The louder half. SmolLM2, 4,096 tokens of prose and code, KL to float32: 1.0 gives 5.8e-4, 1.3
8.2e-4, 3.0 1.5e-3, all groups 1.9e-4; bf16 8.5e-4."""


class Int8Linear:
    """y = x Wᵀ + b; `struct` is what kernels are called with."""

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        kernels: Kernels,
        arena: Arena,
    ) -> None:
        """`weight` float32 [num_outputs, num_inputs], rounded into memory of the arena; `bias`
        float32 [num_outputs]. All inputs are rounded to 16 bits until `watch` finds which need
        it."""
        num_outputs, num_inputs = weight.shape
        num_tiles, num_groups = -(-num_outputs // _TILE_OUTPUTS), -(-num_inputs // GROUP)
        self._kernels = kernels
        self._bias = None if bias is None else bias.contiguous()
        taken = arena.take(num_tiles * num_groups * _BLOCK_BYTES)
        self._blocks = taken.view(num_tiles, num_groups, _BLOCK_BYTES)
        # How much an error in a group's inputs weighs in the outputs.
        self._gains = torch.zeros(num_groups)
        for first in range(0, num_tiles, _TILES_AT_ONCE):
            rows = slice(first * _TILE_OUTPUTS, (first + _TILES_AT_ONCE) * _TILE_OUTPUTS)
            rounded = round_weight(weight[rows])
            _pack(rounded, self._blocks[first : first + _TILES_AT_ONCE])
            self._gains += rounded.values().square().sum(dim=(0, 2))
        self._watching: Loudness | None = None
        self.struct = LinearStruct(
            blocks=self._blocks.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            num_outputs=num_outputs,
            num_inputs=num_inputs,
        )
        self._set_loud(torch.arange(len(self._gains)))

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """float32 [num_tokens, num_inputs] → float32 [num_tokens, num_outputs]"""
        if self._watching is not None:
            self._set_loud(self._loud_groups(inputs, self._watching))
            self._watching = None
        return self._kernels.linear(self.struct, inputs)

    def watch(self, loudness: Loudness) -> None:
        """The next call's inputs are typical: they decide which groups are loud."""
        self._watching = loudness

    def _loud_groups(self, inputs: torch.Tensor, loudness: Loudness) -> torch.Tensor:
        groups = pad(inputs, (0, -inputs.shape[1] % GROUP)).view(len(inputs), -1, GROUP)
        steps = groups.abs().amax(-1) / _MAX_INPUT_CODE
        # A rounding error is spread evenly over a step: its mean square is step² / 12. Each token
        # counts alike; some first tokens are a thousand times as loud as all others.
        signal = groups.square().sum(-1) / GROUP * self._gains
        noise = steps.square() / 12 * self._gains / signal.sum(-1, keepdim=True)
        noise = noise.mean(0)
        return (noise > loudness.max_noise * noise.median()).nonzero()[:, 0]

    def _set_loud(self, groups: torch.Tensor) -> None:
        self._loud = groups.sort().values.to(torch.int32)
        self.struct.loud = self._loud.data_ptr()
        self.struct.num_loud = len(self._loud)


class RoundedWeight(msgspec.Struct, frozen=True, kw_only=True):
    """`codes` whole numbers in float32 [num_outputs, num_groups, 32], `scales` and `minima` fp16
    [num_outputs, num_groups]."""

    codes: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor

    def values(self) -> torch.Tensor:
        """float32 [num_outputs, num_groups, 32]"""
        return self.codes * self.scales.float()[..., None] + self.minima.float()[..., None]


def round_weight(weight: torch.Tensor) -> RoundedWeight:
    """`weight` float32 [num_outputs, num_inputs]; inputs that the last group lacks count as 0."""
    padded = pad(weight, (0, -weight.shape[1] % GROUP))
    groups = padded.view(len(weight), -1, GROUP)
    minima = groups.amin(-1).half()
    above = groups - minima.float()[..., None]
    scales = (above.amax(-1) / _MAX_CODE).half()
    divisors = torch.where(scales == 0, math.inf, scales.float())
    codes = (above / divisors[..., None]).round_().clamp_(0, _MAX_CODE)
    return RoundedWeight(codes=codes, scales=scales, minima=minima)


def _pack(rounded: RoundedWeight, blocks: torch.Tensor) -> None:
    """Fill `blocks` uint8 [num_tiles, num_groups, block bytes]: WeightBlock in linear.h. Outputs
    that the last tile lacks are zero."""
    lacking = -len(rounded.codes) % _TILE_OUTPUTS
    codes = pad(rounded.codes.to(torch.uint8), (0, 0, 0, 0, 0, lacking))
    num_tiles, num_groups = len(codes) // _TILE_OUTPUTS, codes.shape[1]
    # [tile, output, group, quad, input] → [tile, group, quad, output, input]
    tiled = codes.view(num_tiles, _TILE_OUTPUTS, num_groups, GROUP // 4, 4)
    blocks[:, :, :_CODES_END] = tiled.permute(0, 2, 3, 1, 4).flatten(2)

    def by_group(factors: torch.Tensor) -> torch.Tensor:
        tiles = pad(factors, (0, 0, 0, lacking)).view(num_tiles, _TILE_OUTPUTS, num_groups)
        return tiles.transpose(1, 2).contiguous().view(torch.uint8)

    blocks[:, :, _CODES_END:_SCALES_END] = by_group(rounded.scales)
    blocks[:, :, _SCALES_END:] = by_group(rounded.minima)
