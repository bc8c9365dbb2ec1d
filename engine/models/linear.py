"""Linear layers with int8 weights, in groups of 32 inputs.

Weights: scale * code + minimum, fp16 both, codes 0 … 255. Where a file's weights have no more than
16 levels a group (Q4_0, Q4_1, Q4_K), codes are 0 … 15: nothing is lost that 8 bits would keep, and
half as much is read.

Inputs are rounded to int8 too, each group of 32 with a float scale of its own. A few channels of a
model are louder than all others, for any token; what is lost in their groups is most of what is
lost. So these groups, found by watching a short text pass, are rounded to 16 bits. (With AVX2 all
are where weights have 8 bits: that costs nothing.)

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
_MAX_LEVEL = 15
_MAX_MISS = 0.03
"""So far, in steps, a weight may lie from one of 16 levels: it can lie as far from one of 256."""
_MAX_INPUT_CODE = 127
_TILE_OUTPUTS = 32
_ROWS_AT_ONCE = 2048
"""Rounding takes several times the memory of what it rounds; a vocabulary is large."""
_ROWS_OF_A_LOOK = 4
"""Most weights that have more than 16 levels in a group show it in the first."""
_LINE_OUTPUTS = 16


class Loudness(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of inputs are rounded to 16 bits where rounding them to 8 would add more than so many
    times the noise that it adds in the median group. Where noise comes from all groups alike, that
    takes none."""

    max_noise: float


LOUDNESS = Loudness(max_noise=1.0)
"""The louder half. SmolLM2, 4,096 tokens of prose and code, KL to float32 where all inputs are so
rounded: 1.0 gives 5.8e-4, 1.3 8.2e-4, 3.0 1.5e-3, all groups 1.9e-4; bf16 8.5e-4."""


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
        self._kernels = kernels
        self._bias = None if bias is None else bias.contiguous()
        packed = _packed(weight)
        size = packed.blocks[0].shape[1:]
        taken = arena.take(sum(part.numel() for part in packed.blocks))
        self._blocks = torch.cat(packed.blocks, out=taken.view(-1, *size))
        self._gains = packed.gains
        self._watching: Loudness | None = None
        self.struct = LinearStruct(
            blocks=self._blocks.data_ptr(),
            bias=None if self._bias is None else self._bias.data_ptr(),
            num_outputs=num_outputs,
            num_inputs=num_inputs,
            bits=packed.bits,
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
    """`codes` whole numbers of so many bits in float32 [num_outputs, num_groups, 32], `scales` and
    `minima` fp16 [num_outputs, num_groups]."""

    bits: int
    codes: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor

    def values(self) -> torch.Tensor:
        """float32 [num_outputs, num_groups, 32]"""
        return self.codes * self.scales.float()[..., None] + self.minima.float()[..., None]


def round_weight(weight: torch.Tensor, *, bits: int = 8) -> RoundedWeight:
    """`weight` float32 [num_outputs, num_inputs]; 4 bits are for what `has_few_levels`."""
    rounded = _rounded(weight, bits=bits)
    assert rounded is not None, "more levels than codes"
    return rounded


def _rounded(weight: torch.Tensor, *, bits: int) -> RoundedWeight | None:
    """None for 4 bits of what has more levels."""
    groups = _groups(weight)
    minima = groups.amin(-1).half()
    above = groups - minima.float()[..., None]
    steps = above.amax(-1) / _MAX_CODE if bits == 8 else _level_steps(above)
    if steps is None:
        return None
    codes = _codes(above, steps).round_().clamp_(0, 2**bits - 1)
    return RoundedWeight(bits=bits, codes=codes, scales=steps.half(), minima=minima)


def has_few_levels(weight: torch.Tensor) -> bool:
    """Each group's weights lie on 16 levels at most, all one step apart, as a file of 4 bits gives
    them."""
    return _rounded(weight, bits=4) is not None


class _Packed(msgspec.Struct, frozen=True, kw_only=True):
    """`blocks` uint8 [num_tiles, num_groups, block bytes] of some rows after the others. `gains`
    [num_groups]: how much an error in a group's inputs weighs in the outputs."""

    bits: int
    blocks: list[torch.Tensor]
    gains: torch.Tensor


def _packed(weight: torch.Tensor) -> _Packed:
    packed = _packed_in(weight, bits=4) if has_few_levels(weight[:_ROWS_OF_A_LOOK]) else None
    packed = packed or _packed_in(weight, bits=8)
    assert packed is not None, "8 bits are for any"
    return packed


def _packed_in(weight: torch.Tensor, *, bits: int) -> _Packed | None:
    """Some rows at once, since what stands between takes several times their memory."""
    blocks = []
    gains = torch.zeros(-(-weight.shape[1] // GROUP))
    for part in _in_slices(weight, _ROWS_AT_ONCE):
        rounded = _rounded(part, bits=bits)
        if rounded is None:
            return None
        blocks.append(_pack(rounded))
        gains += rounded.values().square().sum(dim=(0, 2))
    return _Packed(bits=bits, blocks=blocks, gains=gains)


def _in_slices(tensor: torch.Tensor, num_rows: int) -> tuple[torch.Tensor, ...]:
    return tuple(tensor[at : at + num_rows] for at in range(0, len(tensor), num_rows))


def _groups(weight: torch.Tensor) -> torch.Tensor:
    """[num_outputs, num_groups, 32]; what the last lacks repeats: it must not widen the range."""
    padded = pad(weight[None], (0, -weight.shape[1] % GROUP), mode="replicate")[0]
    return padded.view(len(weight), -1, GROUP)


def _level_steps(above: torch.Tensor) -> torch.Tensor | None:
    """[num_outputs, num_groups], the step between a group's levels, the lowest of which is 0; None
    where a group has too many. The highest may be any of them: not all levels need occur."""
    spans = above.amax(-1)
    steps = spans / _MAX_LEVEL
    missed = _misses_levels(above, steps)
    for level in range(_MAX_LEVEL - 1, 0, -1):
        if not missed.any():
            break
        steps[missed] = spans[missed] / level
        missed[missed.clone()] = _misses_levels(above[missed], steps[missed])
    return None if missed.any() else steps


def _misses_levels(above: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    codes = _codes(above, steps)
    return (codes - codes.round()).abs().amax(-1) > _MAX_MISS


def _codes(above: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Not yet whole numbers."""
    scales = steps.half().float()
    return above / torch.where(scales == 0, math.inf, scales)[..., None]


def _pack(rounded: RoundedWeight) -> torch.Tensor:
    """uint8 [num_tiles, num_groups, block bytes]: WeightBlock in linear.h. Outputs that the last
    tile lacks are zero."""
    lacking = -len(rounded.codes) % _TILE_OUTPUTS
    codes = pad(rounded.codes.to(torch.uint8), (0, 0, 0, 0, 0, lacking))
    num_tiles, num_groups = len(codes) // _TILE_OUTPUTS, codes.shape[1]
    # [tile, line, output, group, quad, input] → [tile, group, line, quad, output, input]
    quads = codes.view(num_tiles, -1, _LINE_OUTPUTS, num_groups, GROUP // 4, 4)
    lines = quads.permute(0, 3, 1, 4, 2, 5)
    if rounded.bits == 4:
        lines = lines[:, :, :, 0::2] | lines[:, :, :, 1::2] << 4

    def by_group(factors: torch.Tensor) -> torch.Tensor:
        tiles = pad(factors, (0, 0, 0, lacking)).view(num_tiles, _TILE_OUTPUTS, num_groups)
        return tiles.transpose(1, 2).contiguous().view(torch.uint8)

    return torch.cat((lines.flatten(2), by_group(rounded.scales), by_group(rounded.minima)), 2)
