"""The GPU's kernels in Triton's interpreter; on a GPU where TRITON_INTERPRET is 0."""

from collections import Counter

import torch

from engine.attention.reference import attend
from engine.attention.spans import AttentionSpans
from engine.attention.triton_kernels import INTERPRETED
from engine.attention.triton_pages import TritonAttention
from engine.batch import Chunk, build_batch
from engine.kv.pages import PageLayout
from engine.kv.pool import LayerPages, PagePool
from engine.kv.quant import KeyCentres

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")


class Batch:
    """Sequences with pages in random places; all that is unused is poison. The same pages lie
    where the kernels run and, for the reference, on the CPU."""

    def __init__(
        self,
        *,
        heads: int = 6,
        kv_heads: int = 2,
        head_dim: int = 64,
        dtype: str = "int8",
        page_tokens: int = 32,
        window: int | None = None,
        poison: int = 0xFF,
        num_pages: int = 80,
    ) -> None:
        self.layout = PageLayout(
            dtype=dtype, page_tokens=page_tokens, num_layers=1, num_kv_heads=kv_heads,
            head_dim=head_dim, windows=(window,), for_cpu=False,
        )  # fmt: skip
        usual, first = torch.randn(2, 1, kv_heads, head_dim)
        centres = KeyCentres(usual=usual, first=2 * first)
        self.centres = centres if self.layout.has_scales else None
        self.pool = PagePool(self.layout, num_pages, key_centres=self.centres)
        self.pool.storage.fill_(poison)
        self.free = torch.randperm(num_pages).tolist()
        self.heads = heads
        self.chunks: list[Chunk] = []
        self.queries: list[torch.Tensor] = []

    @property
    def layer(self) -> LayerPages:
        return self.pool.layers[0]

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

    def spans(self, *, only: int | None = None) -> AttentionSpans:
        chosen = slice(None) if only is None else slice(only, only + 1)
        return build_batch(self.chunks[chosen], page_tokens=self.layout.page_tokens).spans

    def run(self, *, only: int | None = None, **cut: object) -> torch.Tensor:
        """What the kernels make of all sequences, or of one by itself."""
        pool = PagePool(
            self.layout, len(self.pool.storage), key_centres=self.centres, device=DEVICE
        )
        pool.storage.copy_(self.pool.storage)
        spans = self.spans(only=only)
        queries = torch.cat(self.queries) if only is None else self.queries[only]
        calls: Counter[str] = Counter()
        result = TritonAttention(calls, **cut)(
            queries.to(DEVICE), pool.layers[0], on(DEVICE, spans)
        )
        assert calls == {"triton": 1}
        return result.cpu()

    def expected(self) -> torch.Tensor:
        return attend(torch.cat(self.queries), self.layer, self.spans())

    def check(self, tolerance: float = 2e-3, **cut: object) -> None:
        assert (self.run(**cut) - self.expected()).abs().max() < tolerance


def on(device: torch.device, spans: AttentionSpans) -> AttentionSpans:
    return AttentionSpans(
        page_tables=spans.page_tables.to(device),
        kv_lens=spans.kv_lens.to(device),
        query_starts=spans.query_starts.to(device),
    )
