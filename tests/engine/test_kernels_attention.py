"""The C++ attention against the one in torch, over the same pages."""

import pytest
import torch

from engine.attention.reference import attend
from engine.attention.spans import Attend
from engine.batch import Chunk, build_batch
from engine.config import KVDtype
from engine.kernels.bindings import Kernels
from engine.kv.pages import PageLayout
from engine.kv.pool import LayerPages, PagePool
from engine.kv.quant import KeyCentres

GEOMETRIES = [(9, 3), (14, 2), (32, 8), (4, 1), (8, 8), (64, 1)]
HEAD_DIMS = [64, 80, 96, 128, 256]
# Queries and probabilities have 16 bits; values here are about 1.
TOLERANCE = 5e-4


class Batch:
    """Sequences with pages in random places; all that is unused is poison."""

    def __init__(
        self,
        *,
        heads: int = 6,
        kv_heads: int = 2,
        head_dim: int = 64,
        page_tokens: int = 32,
        poison: int = 0xFF,
        num_pages: int = 160,
        window: int | None = None,
        dtype: str = "int8",
    ) -> None:
        self.layout = PageLayout(
            dtype=dtype, page_tokens=page_tokens, num_layers=1,
            num_kv_heads=kv_heads, head_dim=head_dim, windows=(window,),
        )  # fmt: skip
        assert self.layout.tiled
        usual, first = torch.randn(2, 1, kv_heads, head_dim)
        centres = KeyCentres(usual=usual, first=2 * first)
        pool = PagePool(self.layout, num_pages, key_centres=centres)
        pool.storage.fill_(poison)
        self.layer: LayerPages = pool.layers[0]
        self.free = torch.randperm(num_pages).tolist()
        self.heads = heads
        self.chunks: list[Chunk] = []
        self.queries: list[torch.Tensor] = []

    def add(self, num_kv: int, num_queries: int) -> None:
        size = self.layout.page_tokens
        pages = [self.free.pop() for _ in range(self.layout.num_pages(num_kv))]
        vectors = torch.randn(2, num_kv, self.layout.num_kv_heads, self.layout.head_dim)
        slots = torch.tensor([pages[i // size] * size + i % size for i in range(num_kv)])
        self.layer.write(vectors[0] * 2, vectors[1], slots, torch.arange(num_kv) == 0)
        first = num_kv - num_queries
        self.chunks.append(
            Chunk(token_ids=[0] * num_queries, first=first, pages=pages, samples=True)
        )
        self.queries.append(torch.randn(num_queries, self.heads, self.layout.head_dim))

    def run(self, kernels: Kernels, *, only: int | None = None) -> torch.Tensor:
        chosen = slice(None) if only is None else slice(only, only + 1)
        spans = build_batch(self.chunks[chosen], page_tokens=self.layout.page_tokens).spans
        return kernels.attend(torch.cat(self.queries[chosen]), self.layer, spans)

    def check(self, kernel: Attend) -> None:
        spans = build_batch(self.chunks, page_tokens=self.layout.page_tokens).spans
        expected = attend(torch.cat(self.queries), self.layer, spans)
        result = kernel(torch.cat(self.queries), self.layer, spans)
        assert (result - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize(("heads", "kv_heads"), GEOMETRIES)
def test_all_heads_of_a_mixed_batch_attend_to_their_own_past(
    kernels: Kernels, heads: int, kv_heads: int, head_dim: int
) -> None:
    torch.manual_seed(1)
    batch = Batch(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    for num_kv, num_queries in ((70, 1), (40, 40), (1, 1), (65, 3), (33, 1), (300, 2)):
        batch.add(num_kv, num_queries)
    batch.check(kernels.attend)


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(9, 3, 64), (4, 1, 256), (6, 2, 96)])
@pytest.mark.parametrize("page_tokens", [16, 64])
def test_groups_of_channels_have_scales_of_their_own(
    kernels: Kernels, heads: int, kv_heads: int, head_dim: int, page_tokens: int
) -> None:
    torch.manual_seed(11)
    batch = Batch(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, dtype="int8-hq",
        page_tokens=page_tokens, poison=0x7F, window=90,
    )  # fmt: skip
    assert batch.layout.num_groups == head_dim // 32
    for num_kv in (*range(1, 20), 64, 65, 300):
        batch.add(num_kv, min(num_kv, 3))
    batch.check(kernels.attend)


@pytest.mark.parametrize("page_tokens", [16, 32, 64])
def test_numba_reads_the_same_pages(page_tokens: int) -> None:
    pytest.importorskip("numba")
    from engine.attention.numba_pages import NumbaAttention

    torch.manual_seed(7)
    kernel = NumbaAttention()
    for heads, kv_heads, head_dim in ((9, 3, 64), (4, 1, 128), (8, 8, 80)):
        batch = Batch(heads=heads, kv_heads=kv_heads, head_dim=head_dim, page_tokens=page_tokens)
        for num_kv in (*range(1, 35), 70):
            batch.add(num_kv, min(num_kv, 3))
        batch.check(kernel)


@pytest.mark.parametrize("page_tokens", [16, 32, 64])
@pytest.mark.parametrize("poison", [0x7F, 0xFF])  # NaN as scales
def test_every_residue_of_the_page_size_is_right_whatever_unused_places_hold(
    kernels: Kernels, page_tokens: int, poison: int
) -> None:
    torch.manual_seed(2)
    for num_kv in range(1, 2 * page_tokens + 2):
        batch = Batch(page_tokens=page_tokens, poison=poison, num_pages=20)
        batch.add(num_kv, 1)
        batch.add(num_kv, min(num_kv, 5))
        batch.check(kernels.attend)


@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 100, 255, 256, 257, 299])
def test_a_window_ends_at_its_edge_whatever_page_or_split_that_is_in(
    kernels: Kernels, window: int
) -> None:
    torch.manual_seed(8)
    batch = Batch(window=window)
    for num_kv, num_queries in ((70, 1), (40, 40), (1, 1), (300, 2), (600, 70)):
        batch.add(num_kv, num_queries)
    batch.check(kernels.attend)


def test_numba_knows_windows_too() -> None:
    pytest.importorskip("numba")
    from engine.attention.numba_pages import NumbaAttention

    torch.manual_seed(9)
    for window in (1, 3, 32, 33, 64, 65):
        batch = Batch(window=window)
        for num_kv, num_queries in ((70, 1), (40, 40), (1, 1), (100, 9)):
            batch.add(num_kv, num_queries)
        batch.check(NumbaAttention())


def test_within_a_window_too_a_result_does_not_depend_on_chunks(kernels: Kernels) -> None:
    torch.manual_seed(10)
    batch = Batch(window=300)
    batch.add(700, 60)
    together = batch.run(kernels)
    batch.chunks[0] = Chunk(token_ids=[0], first=699, pages=batch.chunks[0].pages, samples=True)
    batch.queries[0] = batch.queries[0][-1:]
    assert torch.equal(batch.run(kernels), together[-1:])


@pytest.mark.parametrize("num_kv", [255, 256, 257, 288, 511, 512, 513, 1000])
def test_the_borders_of_splits_are_no_borders_of_attention(kernels: Kernels, num_kv: int) -> None:
    torch.manual_seed(3)
    batch = Batch()
    batch.add(num_kv, 1)
    batch.add(num_kv, 7)
    batch.check(kernels.attend)


def test_a_peak_anywhere_takes_all_the_attention(kernels: Kernels) -> None:
    """The running maximum jumps late, early and between splits."""
    torch.manual_seed(4)
    for peak in (0, 5, 31, 32, 250, 256, 399):
        batch = Batch(heads=2, kv_heads=1)
        batch.add(400, 1)
        page, place = divmod(peak, 32)
        loud = batch.queries[0][:, :1] * 40
        slot = torch.tensor([batch.chunks[0].pages[page] * 32 + place])
        batch.layer.write(loud, torch.full((1, 1, 64), 3.0), slot)
        batch.check(kernels.attend)
        assert (batch.run(kernels)[0, 0] - 3.0).abs().max() < 0.02


def test_a_result_does_not_depend_on_company_chunks_or_threads(kernels: Kernels) -> None:
    torch.manual_seed(5)
    batch = Batch()
    for num_kv, num_queries in ((700, 60), (33, 1), (520, 1), (1, 1)):
        batch.add(num_kv, num_queries)
    together = batch.run(kernels).split([60, 1, 1, 1])
    for number, expected in enumerate(together):
        assert torch.equal(batch.run(kernels, only=number), expected), number
    # The last token of the chunk, alone, as a decode would compute it.
    batch.chunks[0] = Chunk(token_ids=[0], first=699, pages=batch.chunks[0].pages, samples=True)
    batch.queries[0] = batch.queries[0][-1:]
    assert torch.equal(batch.run(kernels, only=0), together[0][-1:])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(batch.run(kernels, only=0), together[0][-1:])
        assert torch.equal(batch.run(kernels)[1:], torch.cat(together[1:]))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [("int8", 64), ("int8", 80), ("int8", 96), ("int8", 128), ("int8-hq", 64)],
)
def test_written_pages_are_those_of_the_reference(
    kernels: Kernels, dtype: KVDtype, head_dim: int
) -> None:
    torch.manual_seed(6)
    layout = PageLayout(
        dtype=dtype, page_tokens=32, num_layers=2, num_kv_heads=3, head_dim=head_dim
    )
    pools = [PagePool(layout, 4) for _ in range(2)]
    keys, values = torch.randn(2, 50, 3, head_dim) * 4
    keys[1], keys[2, 0, :3] = 0.0, torch.tensor([float("nan"), float("inf"), -float("inf")])
    values[3], values[4] = 1e-9, 1e8
    slots = torch.randperm(128)[:50]
    layers = [pool.layers[1] for pool in pools]
    layers[0].write(keys, values, slots)
    kernels.write(layers[1], keys, values, slots)
    _assert_alike(layers)


def _assert_alike(layers: list[LayerPages]) -> None:
    """Keys come turned, and are written byte by byte the same. Values are turned by sums in another
    order: now and then one of them is rounded to the neighbour."""
    assert torch.equal(layers[0].keys.part, layers[1].keys.part)
    assert torch.equal(layers[0].key_scales, layers[1].key_scales)
    scales = [layer.value_scales.float() for layer in layers]
    assert torch.allclose(scales[0], scales[1], rtol=2e-3)
    pages = torch.arange(len(layers[0].values.part))
    codes = [layer.values.take(pages).int() for layer in layers]
    assert (codes[0] - codes[1]).abs().max() <= 1
    assert (codes[0] != codes[1]).float().mean() < 1e-3
