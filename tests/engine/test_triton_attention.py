"""Attention by Triton against the one in torch, over the same pages."""

from collections import Counter

import pytest
import torch
from tritonkit import DEVICE, Batch, on

from engine.attention.spans import AttentionSpans
from engine.attention.triton_pages import TritonAttention
from engine.kv.pool import PagePool

# The ratios and head sizes of real models; a GPU's benchmark runs them in full.
GEOMETRIES = [(9, 3, 64), (14, 2, 64), (8, 2, 128), (4, 1, 256), (2, 2, 80), (3, 1, 96)]
# Queries and probabilities have 11 bits (fp16) on INT8 pages, 8 on a GPU's bf16 pages.
TOLERANCE = {"int8": 3e-3, "bf16": 2e-2, "fp32": 1e-4}


@pytest.mark.parametrize(
    ("geometry", "dtype"),
    [(geometry, "int8") for geometry in GEOMETRIES]
    + [((4, 2, 64), "bf16"), ((4, 1, 80), "bf16"), ((4, 2, 64), "fp32")],
)
def test_all_heads_of_a_mixed_batch_attend_to_their_own_past(
    geometry: tuple[int, int, int], dtype: str
) -> None:
    torch.manual_seed(1)
    heads, kv_heads, head_dim = geometry
    batch = Batch(heads=heads, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype)
    for num_kv, num_queries in ((70, 1), (20, 20), (1, 1), (33, 3)):
        batch.add(num_kv, num_queries)
    batch.check(TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["int8", "bf16"])
@pytest.mark.parametrize("poison", [0x7F, 0xFF])  # NaN as scales, and as bf16
def test_every_residue_of_the_page_size_is_right_whatever_unused_places_hold(
    dtype: str, poison: int
) -> None:
    torch.manual_seed(2)
    batch = Batch(heads=2, kv_heads=1, head_dim=16, dtype=dtype, page_tokens=8, poison=poison)
    for num_kv in range(1, 18):
        batch.add(num_kv, 1 if num_kv % 2 else min(num_kv, 3))
    batch.check(TOLERANCE[dtype])


@pytest.mark.parametrize("num_kv", [511, 512, 513, 1025])
def test_the_borders_of_splits_are_no_borders_of_attention(num_kv: int) -> None:
    torch.manual_seed(3)
    batch = Batch(heads=2, kv_heads=1, head_dim=16)
    batch.add(num_kv, 1)
    batch.check()


@pytest.mark.parametrize("window", [1, 31, 32, 33, 600])
def test_a_window_ends_where_it_says(window: int) -> None:
    torch.manual_seed(4)
    batch = Batch(heads=2, kv_heads=1, head_dim=16, window=window)
    for num_kv, num_queries in ((1, 1), (32, 1), (65, 1), (1100, 1), (33, 20), (140, 3)):
        batch.add(num_kv, num_queries)
    batch.check()


@pytest.mark.parametrize("window", [None, 40])
def test_a_chunk_longer_than_a_block_of_queries_sees_all_its_past(window: int | None) -> None:
    torch.manual_seed(5)
    batch = Batch(heads=3, kv_heads=1, head_dim=32, window=window)
    batch.add(170, 63)
    batch.add(64, 22)
    batch.add(21, 21)
    batch.check()


def test_a_peak_anywhere_takes_all_the_attention() -> None:
    """The running maximum jumps late, early and between splits."""
    torch.manual_seed(6)
    for peak in (0, 31, 511, 599):
        batch = Batch(heads=2, kv_heads=1)
        batch.add(600, 1)
        page, place = divmod(peak, 32)
        loud = batch.queries[0][:, :1] * 40
        slot = torch.tensor([batch.chunks[0].pages[page] * 32 + place])
        batch.layer.write(loud, torch.full((1, 1, 64), 3.0), slot)
        assert (batch.run()[0, 0] - 3.0).abs().max() < 0.02


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_values_of_any_size_keep_their_bits(size: float) -> None:
    """Scales that fp16 products would lose or overflow."""
    torch.manual_seed(7)
    batch = Batch(heads=2, kv_heads=1)
    batch.add(200, 1)
    slots = torch.tensor([batch.chunks[0].pages[i // 32] * 32 + i % 32 for i in range(200)])
    keys, values = torch.randn(2, 200, 1, 64)
    loudness = torch.logspace(0, -3, 200)[:, None, None]
    batch.layer.write(keys, values * loudness * size, slots)
    expected = batch.expected()
    assert torch.isfinite(expected).all()
    assert (batch.run() - expected).abs().max() < 2e-3 * expected.abs().max()


def test_a_result_does_not_depend_on_company() -> None:
    torch.manual_seed(8)
    batch = Batch(heads=2, kv_heads=1, head_dim=32)
    queries = (40, 1, 1, 1)
    for num_kv, num_queries in zip((90, 33, 520, 1), queries, strict=True):
        batch.add(num_kv, num_queries)
    for number, together in enumerate(batch.run().split(queries)):
        assert torch.equal(batch.run(only=number), together), number


def test_an_empty_sequence_gets_zeros_and_disturbs_none() -> None:
    """What fills a captured batch up."""
    torch.manual_seed(9)
    batch = Batch(heads=2, kv_heads=1, head_dim=16)
    batch.add(600, 1)
    alone = batch.run()
    spans = batch.spans()
    table = torch.cat((spans.page_tables, torch.zeros_like(spans.page_tables)))
    filled = AttentionSpans(
        page_tables=table, kv_lens=torch.tensor([600, 0]), query_starts=torch.arange(3)
    )
    pool = PagePool(batch.layout, len(batch.pool.storage), key_centres=batch.centres, device=DEVICE)
    pool.storage.copy_(batch.pool.storage)
    queries = batch.queries[0].repeat(2, 1, 1).to(DEVICE)
    result = TritonAttention(Counter())(queries, pool.layers[0], on(DEVICE, filled))
    assert torch.equal(result[:1].cpu(), alone)
    assert (result[1] == 0).all()
