"""Against attention written token by token in float64, over geometries and lengths."""

import math

import msgspec
import pytest
import torch

from engine.attention.reference import attend
from engine.attention.spans import AttentionSpans
from engine.batch import Chunk, build_batch
from engine.kv.pages import PageLayout
from engine.kv.pool import LayerPages, PagePool
from engine.kv.quant import KeyCentres

GEOMETRIES = [(9, 3, 64), (14, 2, 64), (32, 8, 128), (4, 1, 256), (8, 8, 80), (6, 2, 96)]


def _naive(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    first: int,
    window: int | None = None,
) -> torch.Tensor:
    """`queries` of positions from `first` on; keys and values [num_kv, num_kv_heads, head_dim]."""
    group = queries.shape[1] // keys.shape[1]
    result = torch.empty_like(queries, dtype=torch.float64)
    for at, token in enumerate(queries.double()):
        for head, query in enumerate(token):
            end = first + at + 1
            past = slice(0 if window is None else max(0, end - window), end)
            scores = keys[past, head // group].double() @ query / math.sqrt(len(query))
            result[at, head] = scores.softmax(0) @ values[past, head // group].double()
    return result


class _Case:
    """Sequences with pages in random places; all unused bytes are poison."""

    def __init__(
        self,
        geometry: tuple[int, int, int],
        dtype: str,
        poison: int = 0x7F,
        window: int | None = None,
    ) -> None:
        self.heads, self.kv_heads, self.head_dim = geometry
        self.layout = PageLayout(
            dtype=dtype, page_tokens=32, num_layers=1,
            num_kv_heads=self.kv_heads, head_dim=self.head_dim, windows=(window,),
        )  # fmt: skip
        self.centres = KeyCentres(
            usual=torch.randn(1, self.kv_heads, self.head_dim),
            first=8 * torch.randn(1, self.kv_heads, self.head_dim),
        )
        self.pool = PagePool(self.layout, 40, key_centres=self.centres)
        self.pool.storage.fill_(poison)
        self.free = torch.randperm(40).tolist()
        self.chunks: list[Chunk] = []
        self.queries: list[torch.Tensor] = []
        self.past: list[tuple[torch.Tensor, torch.Tensor]] = []

    @property
    def layer(self) -> LayerPages:
        return self.pool.layers[0]

    def add(self, num_kv: int, num_queries: int) -> None:
        pages = [self.free.pop() for _ in range(self.layout.num_pages(num_kv))]
        keys = torch.randn(num_kv, self.kv_heads, self.head_dim)
        keys[0] += self.centres.first[0]
        values = torch.randn(num_kv, self.kv_heads, self.head_dim)
        slots = torch.tensor([pages[i // 32] * 32 + i % 32 for i in range(num_kv)])
        begins = torch.arange(num_kv) == 0
        self.layer.write(self.layer.turn(keys), values, slots, begins)
        self.chunks.append(
            Chunk(
                token_ids=[0] * num_queries, first=num_kv - num_queries, pages=pages, samples=True
            )
        )
        self.queries.append(torch.randn(num_queries, self.heads, self.head_dim))
        self.past.append((keys, values))

    def check(self, tolerance: float) -> None:
        spans = build_batch(self.chunks, page_tokens=32).spans
        result = attend(self.layer.turn(torch.cat(self.queries)), self.layer, spans)
        expected = torch.cat(
            [
                _naive(queries, *past, chunk.first, self.layer.window)
                for queries, past, chunk in zip(self.queries, self.past, self.chunks, strict=True)
            ]
        )
        assert (result - expected).abs().max() < tolerance


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("fp32", 1e-5), ("int8", 0.05), ("int8-hq", 0.04)]
)
def test_all_heads_of_a_mixed_batch_attend_to_their_own_past(
    geometry: tuple[int, int, int], dtype: str, tolerance: float
) -> None:
    torch.manual_seed(1)
    case = _Case(geometry, dtype)
    for num_kv, num_queries in ((70, 1), (40, 40), (1, 1), (65, 3), (33, 1)):
        case.add(num_kv, num_queries)
    case.check(tolerance)


@pytest.mark.parametrize("dtype", ["fp32", "int8", "int8-hq"])
@pytest.mark.parametrize("poison", [0x7F, 0xFF])  # 0xFFFF and 0x7FFF are NaN in fp16 and fp32
def test_every_residue_of_the_page_size_is_right_whatever_unused_places_hold(
    dtype: str, poison: int
) -> None:
    torch.manual_seed(2)
    for num_kv in range(1, 66):
        case = _Case((4, 2, 16), dtype, poison)
        case.add(num_kv, 1)
        case.add(num_kv, min(num_kv, 5))
        case.check(1e-5 if dtype == "fp32" else 0.05)


@pytest.mark.parametrize("dtype", ["fp32", "int8", "int8-hq"])
@pytest.mark.parametrize("window", [1, 2, 31, 32, 33, 64, 70])
def test_a_query_sees_its_window_and_nothing_before(window: int, dtype: str) -> None:
    torch.manual_seed(3)
    case = _Case((4, 2, 16), dtype, window=window)
    sizes = ((1, 1), (window, 1), (window + 1, 1), (130, 1), (130, 40), (97, 97), (96, 2))
    for num_kv, num_queries in sizes:
        case.add(num_kv, num_queries)
    case.check(1e-5 if dtype == "fp32" else 0.05)


def test_what_pages_before_the_window_hold_has_no_influence() -> None:
    """They may have been given back, and be another's."""
    torch.manual_seed(4)
    case = _Case((4, 2, 16), "fp32", window=40)
    case.add(130, 1)
    case.add(130, 20)
    for chunk in case.chunks:
        case.pool.storage[list(chunk.pages[:2])] = 0xFF
    case.check(1e-5)


def test_an_offset_that_all_keys_share_costs_nothing_once_it_is_the_centre() -> None:
    """Softmax ignores it; so must what INT8 makes of the keys."""
    torch.manual_seed(5)
    layout = PageLayout(dtype="int8", page_tokens=32, num_layers=1, num_kv_heads=2, head_dim=64)
    loud = torch.zeros(2, 64)
    loud[:, 7], loud[:, 40] = 60.0, -35.0
    keys, values = torch.randn(200, 2, 64), torch.randn(200, 2, 64)
    queries = torch.randn(200, 4, 64)
    chunk = Chunk(token_ids=[0] * 200, first=0, pages=range(7), samples=True)
    spans = build_batch([chunk], page_tokens=32).spans
    exact = _naive(queries, keys, values, 0)

    def error(offset: torch.Tensor, centre: torch.Tensor) -> float:
        centres = KeyCentres(usual=centre[None], first=centre[None])
        layer = PagePool(layout, 7, key_centres=centres).layers[0]
        layer.write(layer.turn(keys + offset), values, torch.arange(200))
        return (attend(layer.turn(queries), layer, spans) - exact).square().mean().item()

    none = torch.zeros(2, 64)
    assert error(loud, loud) < 1.5 * error(none, none)
    assert error(loud, none) > 5 * error(none, none), "the case is no case without the centre"


def test_a_first_key_like_its_centre_costs_nothing_wherever_it_lies() -> None:
    torch.manual_seed(6)
    layout = PageLayout(dtype="int8", page_tokens=32, num_layers=1, num_kv_heads=2, head_dim=64)
    keys, values = torch.randn(2, 100, 2, 64)
    queries = torch.randn(100, 4, 64)
    keys[0] *= 5
    chunk = Chunk(token_ids=[0] * 100, first=0, pages=range(4), samples=True)
    spans = build_batch([chunk], page_tokens=32).spans
    exact = _naive(queries, keys, values, 0)

    def error(first: torch.Tensor) -> float:
        centres = KeyCentres(usual=torch.zeros(1, 2, 64), first=first[None])
        layer = PagePool(layout, 4, key_centres=centres).layers[0]
        layer.write(layer.turn(keys), values, torch.arange(100), spans.begins(100))
        seen = attend(layer.turn(queries), layer, spans)
        last = attend(layer.turn(queries[-1:]), layer, _ending_with(spans, 1))
        assert torch.allclose(seen[-1:], last, atol=1e-4)
        return (seen - exact).abs().max().item()

    assert error(keys[0]) < 0.5 * error(torch.zeros(2, 64))


def _ending_with(spans: AttentionSpans, num_queries: int) -> AttentionSpans:
    starts = torch.tensor([0, num_queries])
    return msgspec.structs.replace(spans, query_starts=starts)
