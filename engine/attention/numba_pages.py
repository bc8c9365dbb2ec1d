"""Attention over INT8 pages by numba, where the C++ kernel cannot be: the pages are read as they
are, and all query heads of a KV head share a pass. Compiled at load; that takes some seconds.
"""

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch

from engine.attention.spans import AttentionSpans
from engine.kv.pages import LANE_CODES, TILE_TOKENS
from engine.kv.pool import LayerPages

# numba has no fp16 on CPUs: a table of all of them.
_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_NO_WINDOW = 2**62
_SIGN, _NUMBER = np.uint16(0x8000), np.uint16(0x7FFF)
"""Parts of an fp16 number."""
_B8, _B16, _B24 = np.int32(8), np.int32(16), np.int32(24)

Array = np.ndarray[Any, Any]
_jit: Callable[[Callable[..., None]], Callable[..., None]] = numba.njit(
    fastmath={"contract", "reassoc"}, error_model="numpy"
)


class NumbaAttention:
    """An `Attend`, for tiled pages."""

    def __call__(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor:
        assert pages.layout.tiled
        assert pages.key_scales is not None
        assert pages.value_scales is not None
        scaled = queries.contiguous() / math.sqrt(queries.shape[-1])
        grouped = scaled.view(len(queries), pages.layout.num_kv_heads, -1, queries.shape[-1])
        result = torch.empty(grouped.shape)
        no_offset = torch.zeros(pages.layout.num_kv_heads, queries.shape[-1])
        first_offset = no_offset if pages.first_offset is None else pages.first_offset
        _attend(
            grouped.numpy(),
            torch.einsum("thgd,hd->thg", grouped, first_offset).contiguous().numpy(),
            _fours(pages.keys.part),
            _fours(pages.values.part),
            pages.layout.page_bytes // LANE_CODES,
            pages.key_scales.view(torch.int16).numpy().view(np.uint16),
            pages.value_scales.view(torch.int16).numpy().view(np.uint16),
            spans.page_tables.numpy(),
            spans.kv_lens.numpy(),
            spans.query_starts.numpy(),
            pages.window or _NO_WINDOW,
            _HALVES,
            result.numpy(),
        )
        return pages.turn_back(result.view(queries.shape))


def _fours(part: torch.Tensor) -> Array:
    """int8 [num_pages, …, 4] → int32 [-1], all that lies between the pages included. Bytes are
    taken out of lanes by shifts, and the array is contiguous: of anything else compilers make no
    vector code."""
    fours = part.view(torch.int32)
    dimensions = zip(fours.shape, fours.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in dimensions)
    return fours.as_strided((last + 1,), (1,)).numpy()


@_jit
def _add_products(sums: Array, codes: Array, factors: Array) -> None:
    """sums[i] += the sum over four bytes of codes[i], each times its factor."""
    first, second, third, fourth = factors[0], factors[1], factors[2], factors[3]
    for i in range(len(codes)):
        four = codes[i]
        sums[i] += (
            first * np.float32(np.int32(four << _B24) >> _B24)
            + second * np.float32(np.int32(four << _B16) >> _B24)
            + third * np.float32(np.int32(four << _B8) >> _B24)
            + fourth * np.float32(four >> _B24)
        )


@_jit
def _score(queries: Array, keys: Array, used: int, scores: Array) -> None:
    """`queries` [group, head_dim], `keys` of one page and head → `scores` [group, page_tokens],
    without scales; those of tiles behind `used` tokens stay as they are."""
    group, head_dim = queries.shape
    scores[:] = 0.0
    num_quads = head_dim // LANE_CODES
    for step in range((used + TILE_TOKENS - 1) // TILE_TOKENS * num_quads):
        token, channel = step // num_quads * TILE_TOKENS, step % num_quads * LANE_CODES
        codes = keys[step * TILE_TOKENS : (step + 1) * TILE_TOKENS]
        for g in range(group):
            query = queries[g, channel : channel + LANE_CODES]
            _add_products(scores[g, token : token + TILE_TOKENS], codes, query)


@_jit
def _soften(scores: Array, scales: Array, lacking: float, state: Array, sums: Array) -> None:
    """One head's `scores` of used tokens become weights, value scales included; `state` is the
    largest score so far and the sum of weights, which with `sums` shrinks to a larger one. The rows
    of `scales`: of keys, of values, and 1 for keys whose score is `lacking` that much."""
    newer = state[0]
    for token in range(len(scores)):
        scores[token] = scores[token] * scales[0, token] + scales[2, token] * lacking
        newer = max(newer, scores[token])
    kept = np.exp(state[0] - newer)
    state[0] = newer
    state[1] *= kept
    sums *= kept
    for token in range(len(scores)):
        weight = np.exp(scores[token] - newer)
        state[1] += weight
        scores[token] = weight * scales[1, token]


@_jit
def _attend_page(
    queries: Array,
    lacking: Array,
    keys: Array,
    values: Array,
    scales: Array,
    unseen: int,
    used: int,
    scores: Array,
    state: Array,
    sums: Array,
) -> None:
    """The page's tokens from `unseen` to before `used` are seen. `scales` [3, page_tokens] as in
    `_soften`; `state` [group, 2] and `sums` [group, head_dim] run on from page to page."""
    group, head_dim = queries.shape
    _score(queries, keys, used, scores)
    for g in range(group):
        scores[g, :unseen] = 0.0
        scores[g, used:] = 0.0
        seen = scores[g, unseen:used]
        _soften(seen, scales[:, unseen:], lacking[g], state[g], sums[g])
    for four in range(unseen // LANE_CODES, (used + LANE_CODES - 1) // LANE_CODES):
        codes = values[four * head_dim : (four + 1) * head_dim]
        for g in range(group):
            weights = scores[g, four * LANE_CODES : (four + 1) * LANE_CODES]
            _add_products(sums[g], codes, weights)


@_jit
def _attend_token(
    queries: Array,
    lacking: Array,
    keys: Array,
    values: Array,
    page_fours: int,
    key_scales: Array,
    value_scales: Array,
    page_table: Array,
    first_kv: int,
    num_kv: int,
    halves: Array,
    result: Array,
) -> None:
    """`queries` and `result` [num_kv_heads, group, head_dim] of one token, which sees those from
    `first_kv` to before `num_kv`. `lacking` [num_kv_heads, group]: of the score of a first key."""
    num_kv_heads, group, head_dim = queries.shape
    page_tokens = key_scales.shape[2]
    head_fours = page_tokens * head_dim // LANE_CODES
    scores = np.empty((group, page_tokens), dtype=np.float32)
    scales = np.empty((3, page_tokens), dtype=np.float32)
    state = np.empty((group, 2), dtype=np.float32)
    for head in range(num_kv_heads):
        state[:, 0], state[:, 1] = -np.inf, 0.0
        sums = result[head]
        sums[:] = 0.0
        for at in range(first_kv // page_tokens * page_tokens, num_kv, page_tokens):
            page = page_table[at // page_tokens]
            start = page * page_fours + head * head_fours
            for token in range(page_tokens):
                half = key_scales[page, head, token]
                scales[0, token] = halves[half & _NUMBER]
                scales[2, token] = 1.0 if half & _SIGN else 0.0
                scales[1, token] = halves[value_scales[page, head, token]]
            _attend_page(
                queries[head],
                lacking[head],
                keys[start : start + head_fours],
                values[start : start + head_fours],
                scales,
                max(0, first_kv - at),
                min(page_tokens, num_kv - at),
                scores,
                state,
                sums,
            )
        for g in range(group):
            sums[g] /= state[g, 1]


@_jit
def _attend(
    queries: Array,
    lacking: Array,
    keys: Array,
    values: Array,
    page_fours: int,
    key_scales: Array,
    value_scales: Array,
    page_tables: Array,
    kv_lens: Array,
    query_starts: Array,
    window: int,
    halves: Array,
    result: Array,
) -> None:
    """`queries` and `result` [num_tokens, num_kv_heads, group, head_dim], `lacking` [num_tokens,
    num_kv_heads, group]; `keys` and `values` by
    fours of codes, `page_fours` from page to page; the rest as in `LayerPages` and
    `AttentionSpans`."""
    for seq in range(len(kv_lens)):
        end = query_starts[seq + 1]
        for row in range(query_starts[seq], end):
            num_kv = kv_lens[seq] - (end - 1 - row)
            _attend_token(
                queries[row],
                lacking[row],
                keys,
                values,
                page_fours,
                key_scales,
                value_scales,
                page_tables[seq],
                max(0, num_kv - window),
                num_kv,
                halves,
                result[row],
            )
