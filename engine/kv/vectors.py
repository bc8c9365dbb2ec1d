"""Keys or values of one layer in all pages, whatever order their elements have within a page.

Where pages are tiled, what one step of a kernel multiplies lies together, four codes to a lane:
keys as [page_tokens / 16][head_dim / 4][16 tokens][4 channels], values as [page_tokens / 4]
[head_dim][4 tokens]. Otherwise both are [page_tokens, head_dim]. The head stands before these.
"""

from collections.abc import Callable

import torch

from engine.kv.pages import LANE_CODES, TILE_TOKENS, PageLayout

PartView = Callable[[tuple[int, ...]], torch.Tensor]
"""Sizes within a page → [num_pages, *sizes]."""


class PagedVectors:
    """Read and written by page and place; `part` is the memory itself, for kernels."""

    def __init__(self, layout: PageLayout, view: PartView, *, keys: bool) -> None:
        heads, tokens, dim = layout.num_kv_heads, layout.page_tokens, layout.head_dim
        self._sizes = (heads, tokens, dim)
        self._tiled = layout.tiled
        self._keys = keys
        if not layout.tiled:
            sizes: tuple[int, ...] = self._sizes
        elif keys:
            tiles, quads = tokens // TILE_TOKENS, dim // LANE_CODES
            sizes = (heads, tiles, quads, TILE_TOKENS, LANE_CODES)
        else:
            sizes = (heads, tokens // LANE_CODES, dim, LANE_CODES)
        self.part = view(sizes)

    @property
    def dtype(self) -> torch.dtype:
        return self.part.dtype

    def take(self, page_ids: torch.Tensor) -> torch.Tensor:
        """`page_ids` int64 [n] → a copy or a view of it, [n, num_kv_heads, page_tokens,
        head_dim]."""
        taken = self.part.index_select(0, page_ids)
        if not self._tiled:
            return taken
        ordered = taken.permute(0, 1, 2, 4, 3, 5) if self._keys else taken.transpose(3, 4)
        return ordered.reshape(len(page_ids), *self._sizes)

    def put(self, page_ids: torch.Tensor, places: torch.Tensor, vectors: torch.Tensor) -> None:
        """`vectors` [n, num_kv_heads, head_dim], of this dtype, one for each place in a page."""
        if not self._tiled:
            self.part[page_ids, :, places] = vectors
        elif self._keys:
            tiles, tokens = places // TILE_TOKENS, places % TILE_TOKENS
            quads = vectors.view(*vectors.shape[:-1], -1, LANE_CODES)
            self.part[page_ids, :, tiles, :, tokens] = quads
        else:
            self.part[page_ids, :, places // LANE_CODES, :, places % LANE_CODES] = vectors
