"""How the GPU kernels are cut into programs, by page type and head size."""

import msgspec

from engine.config import KVDtype

_LEAST_ROWS = 16
"""What a tensor core multiplies at once."""


class Tiles(msgspec.Struct, frozen=True, kw_only=True):
    """`rows`: query heads times queries of a program; `tokens`: of the past at a time; what Triton
    calls num_warps and num_stages. Page numbers are read two stages ahead of pages."""

    rows: int
    tokens: int
    num_warps: int
    num_stages: int


class Tiling(msgspec.Struct, frozen=True, kw_only=True):
    """`split_tokens` of the past go to one program of a decode: the same for all sequences."""

    decode: Tiles
    prefill: Tiles
    split_tokens: int = 512


def tiling(dtype: KVDtype, head_dim: int) -> Tiling:
    """Chosen by what ptxas says of INT8 on sm_90 at head sizes 64, 128 and 256 (no spilled
    register; shared memory for two programs a multiprocessor), not by measurement:
    `tests/benchmark/gpu.py --tune` times others."""
    wide = head_dim > 128
    # fp32 is there to compare with: it has no tensor cores here and needs four times the memory.
    tokens = {"int8": 64, "bf16": 64}.get(dtype, 32) // (2 if wide else 1)
    # Four lanes of head_dim / 4 channels, 8 channels a warp.
    warps = 2 if head_dim <= 64 else 4
    return Tiling(
        decode=Tiles(rows=_LEAST_ROWS, tokens=tokens, num_warps=warps, num_stages=5),
        prefill=Tiles(rows=64, tokens=tokens, num_warps=8, num_stages=3),
    )


def padded_rows(least: int) -> int:
    """To the next power of two that a tensor core takes."""
    return max(_LEAST_ROWS, 1 << (least - 1).bit_length())
