"""Loads the kernels, and trusts them only when they compute what the references compute."""

import logging

import torch

from engine.attention.cpu import TiledAttention
from engine.attention.reference import attend
from engine.attention.spans import Attend
from engine.batch import Chunk, build_batch
from engine.kernels.bindings import Kernels
from engine.kernels.build import (
    KernelsUnavailable,
    cache_folder,
    compiler_path,
    cpu_flags,
    library_path,
)
from engine.kernels.layercheck import layer_error
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres
from engine.memory import Arena
from engine.models.linear import Int8Linear, has_few_levels, round_weight

_KV_LENS = (1, 31, 32, 33, 300)
_PAGES = {
    "attention": PageLayout(
        dtype="int8", page_tokens=32, num_layers=1, num_kv_heads=2, head_dim=64
    ),
    "attention in groups": PageLayout(
        dtype="int8-hq", page_tokens=32, num_layers=1, num_kv_heads=2, head_dim=64
    ),
    "attention of long heads in a window": PageLayout(
        dtype="int8", page_tokens=32, num_layers=1, num_kv_heads=1, head_dim=256, windows=(40,)
    ),
    "attention in a window": PageLayout(
        dtype="int8", page_tokens=64, num_layers=1, num_kv_heads=2, head_dim=128, windows=(100,)
    ),
}
_GROUP = 3
"""Query heads for each KV head."""
_ATTENTION_TOLERANCE = 1e-3
_LINEAR_TOLERANCE = 0.02  # relative; inputs rounded to int8 give 0.005
_LAYER_TOLERANCE = 0.01

log = logging.getLogger("engine.kernels")


def load_kernels() -> Kernels | None:
    """None, and one line in the log that says why, where there can be none."""
    try:
        path = library_path(compiler=compiler_path(), flags=cpu_flags(), folder=cache_folder())
        kernels = Kernels(path)
        check(kernels)
    except KernelsUnavailable as error:
        log.warning("no C++ kernels, slower code serves: %s", error)
        return None
    except OSError as error:
        log.warning("no C++ kernels, slower code serves: the library does not load: %s", error)
        return None
    return kernels


def load_numba() -> TiledAttention | None:
    """Attention by numba, compiled and checked; None where numba is not installed or not right."""
    try:
        from engine.attention.numba_pages import NumbaAttention
    except ImportError as error:
        log.warning("numba cannot be used, torch serves: %s", error)
        return None
    numba = NumbaAttention()
    error_of_numba = max(
        _attention_error(numba, layout, torch.Generator().manual_seed(1))
        for layout in _PAGES.values()
        if layout.num_groups == 1
    )
    if not error_of_numba < _ATTENTION_TOLERANCE:
        log.warning("numba's attention is off by %.1e, torch serves", error_of_numba)
        return None
    return TiledAttention(name="numba", attend=numba)


@torch.inference_mode()
def check(kernels: Kernels) -> None:
    """Raises KernelsUnavailable when results are not those of the references, with the number of
    threads that torch has now. Takes a tenth of a second."""
    generator = torch.Generator().manual_seed(1)
    attention = (
        (name, _attention_error(kernels.attend, layout, generator), _ATTENTION_TOLERANCE)
        for name, layout in _PAGES.items()
    )
    for name, error, tolerance in (
        *attention,
        ("linear", _linear_error(kernels, generator), _LINEAR_TOLERANCE),
        ("linear of 4 bits", _linear_error(kernels, generator, levels=16), _LINEAR_TOLERANCE),
        ("layer", layer_error(kernels, generator), _LAYER_TOLERANCE),
    ):
        if not error < tolerance:  # NaN is no pass
            raise KernelsUnavailable(f"{name} is off by {error:.1e}, more than {tolerance:.0e}")


def _attention_error(kernel: Attend, layout: PageLayout, generator: torch.Generator) -> float:
    """Largest difference on random keys and values, written by the reference."""
    num_pages = sum(layout.num_pages(num_kv) for num_kv in _KV_LENS)
    heads = (layout.num_kv_heads, layout.head_dim)
    usual, first = torch.randn(2, 1, *heads, generator=generator)
    pool = PagePool(layout, num_pages, key_centres=KeyCentres(usual=usual, first=first))
    pool.storage.fill_(0x7F)  # NaN as a scale: what is unused must not count
    pages, chunks, next_page = pool.layers[0], [], 0
    for num_kv in _KV_LENS:
        table = range(next_page, next_page + layout.num_pages(num_kv))
        keys, values = torch.randn(2, num_kv, *heads, generator=generator)
        slots = next_page * layout.page_tokens + torch.arange(num_kv)
        pages.write(keys, values, slots, begins=torch.arange(num_kv) == 0)
        num_queries = min(num_kv, 3)
        chunks.append(
            Chunk(
                token_ids=[0] * num_queries,
                first=num_kv - num_queries,
                pages=table,
                samples=True,
            )
        )
        next_page += len(table)
    spans = build_batch(chunks, page_tokens=layout.page_tokens).spans
    num_heads = _GROUP * layout.num_kv_heads
    queries = torch.randn(
        int(spans.query_starts[-1]), num_heads, layout.head_dim, generator=generator
    )
    expected = attend(queries, pages, spans)
    return float((kernel(queries, pages, spans) - expected).abs().max())


def _linear_error(kernels: Kernels, generator: torch.Generator, *, levels: int = 1000) -> float:
    """Relative, against the product with the rounded weights."""
    weight = torch.randint(levels, (70, 100), generator=generator) / levels
    bias = torch.randn(70, generator=generator)
    rounded = round_weight(weight, bits=4 if has_few_levels(weight) else 8)
    inputs = torch.randn(20, 100, generator=generator)
    expected = inputs @ rounded.values().flatten(1)[:, :100].T + bias
    result = Int8Linear(weight, bias, kernels=kernels, arena=Arena())(inputs)
    return float((result - expected).norm() / expected.norm())
