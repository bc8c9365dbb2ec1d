"""The GPU path on a CUDA machine, in one call:

    python tests/benchmark/gpu.py [--tune] [--skip-serving]

1. correctness: the kernels against torch's reference in float32, and written pages byte by byte;
2. bandwidth: GB/s of keys, values and scales that a decode reads, against the card's own copy rate.
   Pages are distinct, more than the L2 cache holds, and in random order; each time is the median of
   100 replays of a CUDA graph;
3. serving: `rejoinder serve` with `device: cuda`, the bundled SmolLM2, N clients over HTTP: tokens
   a second; in float32 greedy text equal to what `device: cpu` gives, but for ties.

Ends with 1 on a mismatch, with 2 where there is no CUDA device. `--tune` also times other cuts of
the kernels than those of `engine/attention/triton_tiles.py`.
"""

import argparse
import itertools
import platform
import sys
from collections import Counter
from collections.abc import Iterator

import gpu_serving
import msgspec
import torch
import triton

from engine.attention.reference import attend
from engine.attention.spans import AttentionSpans
from engine.attention.triton_pages import TritonAttention, write_by_triton
from engine.attention.triton_tiles import Tiles, Tiling, tiling
from engine.kv.pages import PageLayout
from engine.kv.pool import LayerPages, PagePool
from engine.kv.quant import KeyCentres

NO_DEVICE = 2
GEOMETRIES = [(9, 3, 64), (14, 2, 64), (32, 8, 128), (4, 1, 256), (8, 8, 80), (6, 2, 96)]
TOLERANCE = {"int8": 5e-3, "bf16": 3e-2}
REPLAYS = 100
COPIED_BYTES = 2 * 2**30
TARGET = 0.85


class Case(msgspec.Struct, frozen=True):
    """Sequences of `kv_len` tokens, the last `num_queries` of them asked for."""

    heads: int
    kv_heads: int
    head_dim: int
    num_seqs: int
    kv_len: int
    num_queries: int = 1

    def read_bytes(self, dtype: str) -> int:
        """Keys, values and scales of the tokens, once."""
        vector = self.head_dim + 2 if dtype == "int8" else 2 * self.head_dim
        return 2 * self.num_seqs * self.kv_len * self.kv_heads * vector


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of a case in random order; what is unused is poison."""

    pages: LayerPages
    spans: AttentionSpans
    queries: torch.Tensor


def fill(case: Case, dtype: str, device: torch.device, *, window: int | None = None) -> Filled:
    layout = PageLayout(
        dtype=dtype, page_tokens=32, num_layers=1, num_kv_heads=case.kv_heads,
        head_dim=case.head_dim, windows=(window,), for_cpu=False,
    )  # fmt: skip
    each = layout.num_pages(case.kv_len)
    pool = PagePool(layout, case.num_seqs * each, device=device, writer=write_by_triton)
    pool.storage.fill_(0xFF)
    tables = torch.randperm(case.num_seqs * each, device=device).view(case.num_seqs, each)
    places = torch.arange(case.kv_len, device=device)
    for table in tables:
        vectors = torch.randn(2, case.kv_len, case.kv_heads, case.head_dim, device=device)
        pool.layers[0].write(vectors[0] * 2, vectors[1], table[places // 32] * 32 + places % 32)
    counts = torch.full((case.num_seqs,), case.num_queries)
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))
    spans = AttentionSpans(
        page_tables=tables,
        kv_lens=torch.full((case.num_seqs,), case.kv_len, device=device),
        query_starts=starts.to(device),
    )
    queries = torch.randn(int(starts[-1]), case.heads, case.head_dim, device=device)
    return Filled(pages=pool.layers[0], spans=spans, queries=queries)


def reference(filled: Filled) -> torch.Tensor:
    """By torch, on the CPU, from a copy of the same pages."""
    layout, spans = filled.pages.layout, filled.spans
    pool = PagePool(layout, len(filled.pages.keys.part))
    pool.storage.copy_(storage_of(filled.pages))
    on_cpu = AttentionSpans(
        page_tables=spans.page_tables.cpu(),
        kv_lens=spans.kv_lens.cpu(),
        query_starts=spans.query_starts.cpu(),
    )
    return attend(filled.queries.cpu(), pool.layers[0], on_cpu)


def storage_of(pages: LayerPages) -> torch.Tensor:
    """The pool's bytes: there is one layer, and its keys come first."""
    part = pages.keys.part
    sizes = (part.shape[0], pages.layout.page_bytes)
    raw = torch.empty(0, dtype=torch.uint8, device=part.device)
    return raw.set_(part.untyped_storage(), 0, sizes)


def check_correctness(device: torch.device) -> bool:
    """Prints a line a case; False where one is off."""
    right = True
    for (heads, kv_heads, head_dim), dtype in itertools.product(GEOMETRIES, TOLERANCE):
        for kv_len, num_queries, window in (
            (1, 1, None), (33, 1, None), (4096, 1, None), (1025, 1, 300),
            (700, 250, None), (257, 257, None), (700, 250, 100),
        ):  # fmt: skip
            case = Case(heads, kv_heads, head_dim, 3, kv_len, num_queries)
            filled = fill(case, dtype, device, window=window)
            result = TritonAttention(Counter())(filled.queries, filled.pages, filled.spans).cpu()
            error = float((result - reference(filled)).abs().max())
            fits = error < TOLERANCE[dtype]  # NaN does not
            right &= fits
            if not fits or kv_len == 4096:
                print(f"  {heads:2}/{kv_heads} heads, D={head_dim:3}, {dtype}, {kv_len} tokens, "
                      f"{num_queries} queries, window {window}: off by {error:.1e}"
                      f"{'' if fits else '  MISMATCH'}")  # fmt: skip
    return check_written(device) and right


def check_written(device: torch.device) -> bool:
    """INT8 pages that the kernel wrote against those of torch on the CPU."""
    right = True
    for head_dim in (64, 80, 96, 128, 256):
        layout = PageLayout(
            dtype="int8", page_tokens=32, num_layers=1, num_kv_heads=4, head_dim=head_dim,
            for_cpu=False,
        )  # fmt: skip
        usual, first = torch.randn(2, 1, 4, head_dim)
        centres = KeyCentres(usual=usual, first=first)
        ours = PagePool(layout, 64, key_centres=centres, device=device, writer=write_by_triton)
        theirs = PagePool(layout, 64, key_centres=centres)
        # No turned keys: torch turns them on the device otherwise than on the CPU, by a bit.
        ours.layers[0].turned_centre = theirs.layers[0].turned_centre.to(device)
        ours.layers[0].first_offset = theirs.layers[0].first_offset.to(device)
        vectors = torch.randn(2, 2000, 4, head_dim)
        slots = torch.randperm(64 * 32)[:2000]
        begins = torch.arange(2000) % 100 == 0
        ours.layers[0].write(*vectors.to(device), slots.to(device), begins.to(device))
        theirs.layers[0].write(*vectors, slots, begins)
        right &= torch.equal(ours.storage.cpu(), theirs.storage)
    print(f"  written INT8 pages are {'those' if right else 'NOT those'} of torch, byte by byte")
    return right


def median_s(run: torch.cuda.CUDAGraph) -> float:
    times = []
    for _ in range(REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[REPLAYS // 2]


def captured(work) -> torch.cuda.CUDAGraph:  # type: ignore[no-untyped-def]  # anything to call
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def copy_rate(device: torch.device) -> float:
    """Bytes a second, read and written, of the card's own copy."""
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / median_s(captured(lambda: target.copy_(source)))


def decode_s(case: Case, dtype: str, device: torch.device, cut: Tiling | None = None) -> float:
    """Of one layer's attention. As many copies of the case as are more than the L2 cache holds,
    one after another."""
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    copies = max(1, -(-3 * l2_bytes // case.read_bytes(dtype)))
    filled = [fill(case, dtype, device) for _ in range(copies)]
    kernel = TritonAttention(Counter(), cut=cut)

    def work() -> None:
        for one in filled:
            kernel(one.queries, one.pages, one.spans)

    return median_s(captured(work)) / copies


def print_bandwidth(device: torch.device) -> None:
    rate = copy_rate(device)
    print(f"\ncopy rate of the card: {rate / 1e9:,.0f} GB/s\n")
    print("heads  D    sequences  INT8 us  GB/s   of copy  bf16 us  GB/s   INT8 is faster by")
    for num_seqs, (heads, kv_heads, head_dim) in itertools.product(
        (1, 8, 32), ((32, 8, 128), (9, 3, 64), (4, 1, 256))
    ):
        case = Case(heads, kv_heads, head_dim, num_seqs, 4096)
        took = {dtype: decode_s(case, dtype, device) for dtype in ("int8", "bf16")}
        gbs = {dtype: case.read_bytes(dtype) / s for dtype, s in took.items()}
        print(f"{heads}/{kv_heads:<3} {head_dim:3}  {num_seqs:3} x 4,096  "
              f"{took['int8'] * 1e6:7.1f}  {gbs['int8'] / 1e9:5,.0f}  {gbs['int8'] / rate:7.0%}  "
              f"{took['bf16'] * 1e6:7.1f}  {gbs['bf16'] / 1e9:5,.0f}  "
              f"{took['bf16'] / took['int8']:.2f}x")  # fmt: skip
    print(f"target: {TARGET:.0%} of the copy rate at 32/8 heads, D=128, 32 sequences of 4,096")


def cuts(start: Tiling) -> Iterator[Tiling]:
    for tokens, warps, stages, split in itertools.product(
        (32, 64, 128), (2, 4, 8), (3, 5, 7), (256, 512, 1024)
    ):
        tiles = Tiles(rows=16, tokens=tokens, num_warps=warps, num_stages=stages)
        yield msgspec.structs.replace(start, decode=tiles, split_tokens=split)


def print_tuning(device: torch.device) -> None:
    """The best cuts of a decode, and the one in use."""
    for (heads, kv_heads, head_dim), dtype in itertools.product(
        ((32, 8, 128), (9, 3, 64), (4, 1, 256)), ("int8", "bf16")
    ):
        case, used = Case(heads, kv_heads, head_dim, 32, 4096), tiling(dtype, head_dim)
        timed = [(decode_s(case, dtype, device), used, "in use")]
        for cut in cuts(used):
            try:
                timed.append((decode_s(case, dtype, device, cut), cut, ""))
            except triton.runtime.errors.OutOfResources:
                continue
        print(f"\n{heads}/{kv_heads} heads, D={head_dim}, {dtype}, us: cut")
        for took, cut, note in sorted(timed, key=lambda one: one[0])[:5] + timed[:1]:
            print(f"  {took * 1e6:7.1f}: {cut.decode}, split {cut.split_tokens} {note}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--skip-serving", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing was checked")
        return NO_DEVICE
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{torch.cuda.get_device_name(device)}, {platform.platform()}, Python "
          f"{platform.python_version()}, torch {torch.__version__}, triton {triton.__version__}; "
          f"median of {REPLAYS} graph replays")  # fmt: skip
    torch.manual_seed(1)
    right = check_correctness(device)
    print_bandwidth(device)
    if arguments.tune:
        print_tuning(device)
    if not arguments.skip_serving:
        right = gpu_serving.check() and right
    print("\nall right" if right else "\nMISMATCH: see above")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
