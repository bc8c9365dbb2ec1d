"""Attention in plain torch: right first. Other kernels are measured against it.

Sequences with one query, the decodes, go in groups, padded to the longest; each prefill chunk goes
by itself. Everything is computed in float32; with INT8 pages the scales fold into scores and
probabilities.
"""

import itertools
import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.spans import AttentionSpans
from engine.kv.pool import LayerPages
from engine.kv.vectors import PagedVectors

_GATHERED_TOKENS = 4096


def attend(queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans) -> torch.Tensor:
    """See `engine.attention.spans.Attend`."""
    result = torch.empty_like(queries)
    spans = spans.within(pages.window, page_tokens=pages.layout.page_tokens)
    starts = spans.query_starts.tolist()
    counts = [end - start for start, end in itertools.pairwise(starts)]
    singles = [i for i, count in enumerate(counts) if count == 1]
    for group in _groups(singles, spans):
        rows = [starts[i] for i in group]
        result[rows] = _decode(queries[rows], pages, spans.page_tables[group], spans.kv_lens[group])
    for i, count in enumerate(counts):
        if count > 1:
            rows_of = slice(starts[i], starts[i + 1])
            result[rows_of] = _prefill(
                queries[rows_of], pages, spans.page_tables[i], int(spans.kv_lens[i])
            )
    return pages.turn_back(result)


def _groups(singles: list[int], spans: AttentionSpans) -> list[list[int]]:
    """Few enough together that what is gathered for them stays in the CPU's cache."""
    longest = int(spans.kv_lens.max())
    size = max(1, _GATHERED_TOKENS // longest)
    return [singles[at : at + size] for at in range(0, len(singles), size)]


def _decode(
    queries: torch.Tensor, pages: LayerPages, page_tables: torch.Tensor, kv_lens: torch.Tensor
) -> torch.Tensor:
    """`queries` [num_seqs, num_heads, head_dim], one of each sequence."""
    num_seqs, num_heads, head_dim = queries.shape
    num_kv_heads, page_tokens = pages.layout.num_kv_heads, pages.layout.page_tokens
    num_pages = -(-int(kv_lens.max()) // page_tokens)
    tables = page_tables[:, :num_pages].reshape(-1)
    num_kv = num_pages * page_tokens
    ends = kv_lens[:, None, None, None]
    unseen = torch.arange(num_kv) >= ends  # [num_seqs, 1, 1, num_kv]
    if pages.window is not None:
        unseen |= torch.arange(num_kv) < ends - pages.window

    def gathered(part: torch.Tensor) -> torch.Tensor:
        """[num_seqs * num_pages, heads or groups, page_tokens, …] → float32 [num_seqs,
        the same, num_kv, …]"""
        taken = part.view(num_seqs, num_pages, *part.shape[1:])
        by_head = taken.transpose(1, 2)
        # Ordered and widened in one pass.
        wide = torch.empty(by_head.shape, dtype=torch.float32).copy_(by_head)
        return wide.view(num_seqs, part.shape[1], num_kv, *part.shape[3:])

    def by_group(vectors: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        """float32 [num_seqs, num_kv_heads, num_kv, head_dim], scales applied where there are
        several for a vector."""
        wide = gathered(vectors)
        if scales is None or pages.layout.num_groups == 1:
            return wide
        return _scaled(wide, of_all(scales).view(num_seqs, num_kv_heads, -1, num_kv))

    def of_all(scales: torch.Tensor) -> torch.Tensor:
        """→ float32 [num_seqs, num_kv_heads * num_groups, num_kv]"""
        return gathered(scales.index_select(0, tables))

    folds = pages.layout.num_groups == 1
    grouped = queries.view(num_seqs, num_kv_heads, num_heads // num_kv_heads, head_dim)
    grouped = grouped / math.sqrt(head_dim)
    key_scales = None if pages.key_scales is None else pages.key_scales.abs()
    keys = by_group(pages.keys.take(tables), key_scales)
    scores = grouped @ keys.mT
    if key_scales is not None and folds:
        scores *= of_all(key_scales)[:, :, None]
    if pages.key_scales is not None and pages.first_offset is not None:
        firsts = of_all(pages.key_scales)[:, :: pages.layout.num_groups, None].signbit()
        scores += firsts * (grouped @ pages.first_offset[:, :, None])
    weights = scores.masked_fill_(unseen, -math.inf).softmax(dim=-1)
    values = by_group(pages.values.take(tables), pages.value_scales)
    # 0 * NaN is NaN: what lies behind the last token must not be multiplied.
    if pages.value_scales is not None and folds:
        weights *= of_all(pages.value_scales)[:, :, None].masked_fill(unseen, 0.0)
    else:
        values = values.masked_fill(unseen.view(num_seqs, 1, num_kv, 1), 0.0)
    return (weights @ values).view(num_seqs, num_heads, head_dim)


def _prefill(
    queries: torch.Tensor, pages: LayerPages, page_table: torch.Tensor, num_kv: int
) -> torch.Tensor:
    """`queries` [num_queries, num_heads, head_dim], the last of the sequence's `num_kv` tokens."""
    num_queries, num_heads, head_dim = queries.shape
    num_kv_heads = pages.layout.num_kv_heads
    table = page_table[: pages.layout.num_pages(num_kv)]

    first = num_kv - num_queries
    seen = torch.ones(num_queries, num_kv, dtype=torch.bool).tril_(first)
    if pages.window is not None:
        seen.triu_(first - pages.window + 1)
    group = num_heads // num_kv_heads
    # All query heads of a KV head stand as rows below each other.
    grouped = queries.view(num_queries, num_kv_heads, group, head_dim).permute(1, 2, 0, 3)
    attended = scaled_dot_product_attention(
        grouped.reshape(1, num_kv_heads, group * num_queries, head_dim),
        keys_in_order(pages, table, num_kv)[None],
        in_order(pages.values, pages.value_scales, table, num_kv)[None],
        attn_mask=seen.repeat(group, 1),
    )
    by_head = attended.view(num_kv_heads, group, num_queries, head_dim)
    return by_head.permute(2, 0, 1, 3).reshape(num_queries, num_heads, head_dim)


def keys_in_order(pages: LayerPages, table: torch.Tensor, num_kv: int) -> torch.Tensor:
    """As `in_order`; all have the same centre taken off."""
    if pages.key_scales is None or pages.first_offset is None:
        return in_order(pages.keys, pages.key_scales, table, num_kv)
    keys = in_order(pages.keys, pages.key_scales.abs(), table, num_kv)
    by_head = pages.key_scales.index_select(0, table)[:, :: pages.layout.num_groups]
    firsts = by_head.transpose(0, 1).flatten(1)[:, :num_kv, None].signbit()
    return keys + firsts * pages.first_offset[:, None]


def in_order(
    part: PagedVectors, scales: torch.Tensor | None, table: torch.Tensor, num_kv: int
) -> torch.Tensor:
    """The first `num_kv` vectors in the pages of `table`, which has no more than they need: float32
    [num_kv_heads, num_kv, head_dim], scales applied."""
    vectors = part.take(table).transpose(0, 1).flatten(1, 2)[:, :num_kv].float()
    if scales is None:
        return vectors
    factors = scales.index_select(0, table).transpose(0, 1).flatten(1, 2)[:, :num_kv]
    return _scaled(vectors, factors.float().reshape(len(vectors), -1, num_kv))


def _scaled(vectors: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """`vectors` [..., num_kv, head_dim] times `scales` [..., num_groups, num_kv]."""
    groups = vectors.reshape(*vectors.shape[:-1], scales.shape[-2], -1)
    return (groups * scales.mT[..., None]).reshape(vectors.shape)
