"""What the Triton kernels compute, from the very arguments that they are launched with. Triton's
interpreter, which runs the kernels themselves, takes a tenth of a second for each launch."""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from engine.attention.triton_pages import attend_pages, merge_splits
from engine.kv.quant import quantise

Grid = tuple[int, ...]


def attend(
    grid: Grid,
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    key_scales: torch.Tensor,
    value_scales: torch.Tensor,
    first_offset: torch.Tensor,
    page_tables: torch.Tensor,
    kv_lens: torch.Tensor,
    query_starts: torch.Tensor,
    result: torch.Tensor,
    log_sums: torch.Tensor,
    *numbers: float,
    **settings: Any,
) -> None:
    """`attend_pages`; splits of a past are left to itself."""
    if not settings["WHOLE"]:
        tensors = (queries, keys, values, key_scales, value_scales, first_offset, page_tables)
        more = (kv_lens, query_starts, result, log_sums)
        attend_pages[grid](*tensors, *more, *numbers, **settings)
        return
    quantised, window = settings["QUANTISED"], settings["WINDOW"]

    def in_order(part: torch.Tensor, scales: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """[num_kv_heads, tokens, head_dim]"""
        vectors = part[table].transpose(0, 1).flatten(1, 2).float()
        return vectors * of_all(scales, table).abs() if quantised else vectors

    def of_all(scales: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return scales[table].transpose(0, 1).flatten(1, 2)[..., None].float()

    for i, num_kv in enumerate(kv_lens.tolist()):
        rows = slice(int(query_starts[i]), int(query_starts[i + 1]))
        num_queries = rows.stop - rows.start
        if (num_queries == 1) != settings["DECODE"] or not num_queries:
            continue
        if not num_kv:
            result[rows] = 0
            continue
        table = page_tables[i, : -(-num_kv // settings["PAGE_TOKENS"])]
        k = in_order(keys, key_scales, table)
        if settings["MARKED"]:
            k += of_all(key_scales, table).signbit() * first_offset[:, None]
        v = in_order(values.view(torch.int8) if quantised else values, value_scales, table)
        seen = torch.ones(num_queries, num_kv, dtype=torch.bool).tril(num_kv - num_queries)
        if window:
            seen = seen.triu(num_kv - num_queries - window + 1)
        attended = scaled_dot_product_attention(
            queries[rows].transpose(0, 1)[None], k[None, :, :num_kv], v[None, :, :num_kv],
            attn_mask=seen, enable_gqa=True,
        )  # fmt: skip
        result[rows] = attended[0].transpose(0, 1)


def merge(grid: Grid, *args: Any, **settings: Any) -> None:
    """`merge_splits`, as it is."""
    merge_splits[grid](*args, **settings)


def write(
    grid: Grid,
    new_keys: torch.Tensor,
    new_values: torch.Tensor,
    centres: torch.Tensor,
    first_offsets: torch.Tensor,
    begins: torch.Tensor,
    slots: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    key_scales: torch.Tensor,
    value_scales: torch.Tensor,
    *strides: int,
    **settings: Any,
) -> None:
    """`write_pages`."""
    real = slots >= 0
    pages, places = slots[real] // settings["PAGE_TOKENS"], slots[real] % settings["PAGE_TOKENS"]
    new_keys, new_values = new_keys[real], new_values[real]
    if settings["CENTRED"]:
        new_keys = new_keys - centres
    if not settings["QUANTISED"]:
        keys[pages, :, places] = new_keys.to(keys.dtype)
        values[pages, :, places] = new_values.to(values.dtype)
        return
    signs = torch.ones(len(pages), 1)
    if settings["MARKED"]:
        is_first = begins[real].bool()
        new_keys = new_keys - is_first[:, None, None] * first_offsets
        signs[is_first] = -1
    for vectors, part, scales, sign in (
        (new_keys, keys, key_scales, signs),
        (new_values, values, value_scales, 1),
    ):
        rounded = quantise(vectors)
        part[pages, :, places] = rounded.codes
        scales[pages, :, places] = (rounded.scales * sign).half()
