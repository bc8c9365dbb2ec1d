"""The INT8 scheme of the KV cache.

Keys: k' = H (k - c), where k is a key after RoPE, c the mean key of its layer and head, and H the
orthonormal Walsh-Hadamard matrix; the query becomes H q. Before rounding this changes nothing:
(H q).(H (k - c)) = q.k - q.c, and q.c is the same for all keys of a softmax. c takes away the
constant offset that some channels of keys have, H spreads what is left over all channels (QuaRot,
Ashkboos et al., 2024), so one scale serves a whole vector. On CPUs values are turned by H too, and
what attention makes of them is turned back.

A sequence's first key is like no other: attention that has nowhere else to go gathers there (Xiao
et al., StreamingLLM, 2024), and rounding it cost more than all others together. But it is nearly
the same whatever the first token, so it has a centre of its own, c0: k0' = H (k0 - c0), and what
softmax then misses is added to its score, (H q).(H (c0 - c)). A negative key scale marks such a
key, which may so lie anywhere.

Keys and values: symmetric, one fp16 scale for a token and head, or (`int8-hq`, and heads of more
than 128 channels) one for each 32 channels. That measures better than a scale for each channel and
page, and needs no tail of unrounded keys until a page is full, so a page reads the same whenever it
is read.

The scale is rounded to fp16 before it divides, so that reading multiplies by the very number that
writing divided by.
"""

import math

import msgspec
import torch

MAX_CODE = 127
_MAX_SCALE = 65504.0  # the largest finite fp16


class KeyCentres(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken off keys before they are rounded, each float32 [num_layers, num_kv_heads,
    head_dim]: of a sequence's first key, and of the others."""

    usual: torch.Tensor
    first: torch.Tensor


class Quantised(msgspec.Struct, frozen=True, kw_only=True):
    """`codes` int8 [..., head_dim], `scales` fp16 [...]; codes * scales is the vector again."""

    codes: torch.Tensor
    scales: torch.Tensor


def quantise(vectors: torch.Tensor) -> Quantised:
    """`vectors` float32 [..., head_dim]. Codes are clamp(round_half_even(x / scale), ±127).

    A vector of zeros, or too small for an fp16 scale, gets scale 0 and codes 0. NaN counts as 0;
    ±inf, and what is beyond 127 * 65504, as the largest number that can be written.
    """
    limit = MAX_CODE * _MAX_SCALE
    finite = torch.nan_to_num(vectors, nan=0.0, posinf=limit, neginf=-limit)
    amax = finite.abs().amax(dim=-1).clamp_(max=limit)
    scales = (amax / MAX_CODE).half()
    divisors = torch.where(scales == 0, math.inf, scales.float())
    codes = (finite / divisors[..., None]).round_().clamp_(-MAX_CODE, MAX_CODE)
    return Quantised(codes=codes.to(torch.int8), scales=scales)


def hadamard_matrix(size: int) -> torch.Tensor:
    """Orthonormal and symmetric, float32 [size, size]. Where `size` is no power of two: blocks
    of its largest power-of-two divisor on the diagonal."""
    block = size & -size
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < block:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)), 0)
    return torch.kron(torch.eye(size // block), matrix / math.sqrt(block))
