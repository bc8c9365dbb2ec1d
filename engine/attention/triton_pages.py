"""Pages read and written by the Triton kernels: what `device: cuda` serves with."""

import math
from collections import Counter

import torch
import triton
import triton.language as tl

from engine.attention.spans import AttentionSpans
from engine.attention.triton_kernels import INTERPRETED, LANES, attend_pages
from engine.attention.triton_merge import merge_splits
from engine.attention.triton_tiles import Tiles, Tiling, padded_rows, tiling
from engine.attention.triton_write import write_pages
from engine.kv.pages import PageLayout
from engine.kv.pool import LayerPages

_LEAST_SEQS = 64
"""The kernel is compiled for the next power of two: few of them."""
_LEAST_DIMS = 64
"""A lane of channels is what tensor cores multiply, 16 at least."""


class TritonAttention:
    """An `Attend`, counted as `triton`. Reads no number back from the device: it can be captured
    in a CUDA graph."""

    def __init__(self, calls: Counter[str], *, cut: Tiling | None = None) -> None:
        """`cut` None: as `tiling` says."""
        self._calls = calls
        self._cut = cut

    def __call__(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor:
        self._calls["triton"] += 1
        layout = pages.layout
        cut = self._cut or tiling(layout.dtype, layout.head_dim)
        result = torch.empty(queries.shape, dtype=torch.float32, device=queries.device)
        _decode(queries, pages, spans, cut, result)
        # Each sequence has one query at least: with as many as there are sequences, all decode.
        if queries.shape[0] > spans.kv_lens.shape[0]:
            _prefill(queries, pages, spans, cut, result)
        return result


def write_by_triton(
    pages: LayerPages,
    turned_keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    begins: torch.Tensor | None = None,
) -> None:
    """A `PageWriter`: bit by bit what `LayerPages.write` leaves; a slot of -1 is skipped."""
    layout = pages.layout
    key_part, value_part = pages.keys.part, pages.values.part
    quantised = layout.has_scales
    centre = pages.turned_centre
    key_scales = pages.key_scales if pages.key_scales is not None else key_part
    write_pages[(turned_keys.shape[0], layout.num_kv_heads)](
        _by_head(turned_keys),
        _by_head(values),
        turned_keys if centre is None else centre,
        turned_keys if pages.first_offset is None else pages.first_offset,
        slots if begins is None else begins.view(torch.int8),
        slots,
        key_part,
        value_part,
        key_scales,
        pages.value_scales if pages.value_scales is not None else value_part,
        _by_head(turned_keys).stride(0),
        _by_head(values).stride(0),
        key_part.stride(0),
        key_scales.stride(0),
        QUANTISED=quantised,
        CENTRED=quantised and centre is not None,
        MARKED=quantised and pages.first_offset is not None and begins is not None,
        HEAD_DIM=layout.head_dim,
        DIMS=triton.next_power_of_2(layout.head_dim),
        PAGE_TOKENS=layout.page_tokens,
        num_warps=1,
        enable_fp_fusion=False,
    )


def _by_head(vectors: torch.Tensor) -> torch.Tensor:
    """Heads of a token one behind the other, which views of one projection are."""
    in_line = vectors.stride(2) == 1 and vectors.stride(1) == vectors.shape[2]
    return vectors if in_line else vectors.contiguous()


def _decode(
    queries: torch.Tensor,
    pages: LayerPages,
    spans: AttentionSpans,
    cut: Tiling,
    result: torch.Tensor,
) -> None:
    """Sequences with one query: programs for each split, and a second kernel that merges."""
    num_seqs, max_pages = spans.page_tables.shape
    num_heads, head_dim = queries.shape[1:]
    num_splits = -(-max_pages * pages.layout.page_tokens // cut.split_tokens)
    group = num_heads // pages.layout.num_kv_heads
    rows = padded_rows(max(group, cut.decode.rows))
    if num_splits == 1:
        _launch(
            queries, pages, spans, cut, cut.decode, result, result,
            grid=(num_seqs, 1), decode=True, queries_at_once=1, rows=rows,
        )  # fmt: skip
        return
    parts = queries.new_empty((num_seqs, num_heads, num_splits, head_dim), dtype=torch.float32)
    log_sums = queries.new_empty((num_seqs, num_heads, num_splits), dtype=torch.float32)
    _launch(
        queries, pages, spans, cut, cut.decode, parts, log_sums,
        grid=(num_seqs, num_splits), decode=True, queries_at_once=1, rows=rows,
    )  # fmt: skip
    merge_splits[(num_seqs, num_heads)](
        parts,
        log_sums,
        spans.kv_lens,
        spans.query_starts,
        result,
        num_splits,
        WINDOW=pages.window or 0,
        SPLIT_TOKENS=cut.split_tokens,
        HEAD_DIM=head_dim,
        DIMS=triton.next_power_of_2(head_dim),
        num_warps=4,
        enable_fp_fusion=True,
    )


def _prefill(
    queries: torch.Tensor,
    pages: LayerPages,
    spans: AttentionSpans,
    cut: Tiling,
    result: torch.Tensor,
) -> None:
    """Sequences with several queries: as many at once as fill a tile; the whole past in one go."""
    num_tokens, num_heads = queries.shape[:2]
    group = num_heads // pages.layout.num_kv_heads
    rows = padded_rows(max(group, cut.prefill.rows))
    at_once = rows // group
    _launch(
        queries, pages, spans, cut, cut.prefill, result, result,
        grid=(num_tokens // at_once + spans.kv_lens.shape[0], 1),
        decode=False, queries_at_once=at_once, rows=rows,
    )  # fmt: skip


def _launch(
    queries: torch.Tensor,
    pages: LayerPages,
    spans: AttentionSpans,
    cut: Tiling,
    tiles: Tiles,
    result: torch.Tensor,
    log_sums: torch.Tensor,
    *,
    grid: tuple[int, int],
    decode: bool,
    queries_at_once: int,
    rows: int,
) -> None:
    layout = pages.layout
    assert not layout.tiled
    keys, values = pages.keys.part, pages.values.part
    scales = pages.key_scales if pages.key_scales is not None else keys
    blocks, splits = grid
    attend_pages[(blocks, layout.num_kv_heads, splits)](
        queries,
        keys,
        values.view(torch.int32) if layout.has_scales else values,
        scales,
        pages.value_scales if pages.value_scales is not None else values,
        queries if pages.first_offset is None else pages.first_offset,
        spans.page_tables,
        spans.kv_lens,
        spans.query_starts,
        result,
        log_sums,
        queries.stride(0),
        queries.stride(1),
        keys.stride(0),
        scales.stride(0),
        spans.page_tables.stride(0),
        spans.kv_lens.shape[0],
        math.log2(math.e) / math.sqrt(layout.head_dim),
        DECODE=decode,
        WHOLE=splits == 1,
        SPLIT_TOKENS=cut.split_tokens if decode else 0,
        WINDOW=pages.window or 0,
        QUANTISED=layout.has_scales,
        MARKED=pages.first_offset is not None,
        LANES=LANES if layout.has_scales else 1,
        DOT=_multiplied(layout),
        HEAD_DIM=layout.head_dim,
        DIMS=max(_LEAST_DIMS, triton.next_power_of_2(layout.head_dim)),
        PAGE_TOKENS=layout.page_tokens,
        GROUP=queries.shape[1] // layout.num_kv_heads,
        QUERIES=queries_at_once,
        ROWS=rows,
        TOKENS=tiles.tokens,
        SEQS=max(_LEAST_SEQS, triton.next_power_of_2(spans.kv_lens.shape[0])),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        enable_fp_fusion=True,
    )


def _multiplied(layout: PageLayout) -> tl.dtype:
    """INT8 codes, and queries rounded to 11 bits, are exact in fp16; bf16 pages reach further than
    fp16 does. The interpreter multiplies bf16 wrongly."""
    if layout.dtype == "int8":
        return tl.float16
    return tl.bfloat16 if layout.dtype == "bf16" and not INTERPRETED else tl.float32
