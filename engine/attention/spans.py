"""Who attends to what in one step, and the call that every kernel implements."""

from typing import Protocol

import msgspec
import torch

from engine.kv.pool import LayerPages


class AttentionSpans(msgspec.Struct, frozen=True, kw_only=True):
    """A step's tokens lie flat, sequence after sequence; each attends to its own past and itself.

    `page_tables` int64 [num_seqs, max_pages], filled up with page 0; `kv_lens` int64 [num_seqs],
    tokens in the pages, this step's included; `query_starts` int64 [num_seqs + 1]. The queries of
    sequence i are query_starts[i] … query_starts[i+1], its last kv tokens.
    """

    page_tables: torch.Tensor
    kv_lens: torch.Tensor
    query_starts: torch.Tensor

    def begins(self, num_tokens: int) -> torch.Tensor:
        """bool [num_tokens], of all tokens of the step: the first of their sequences."""
        begins = self.query_starts.new_zeros(num_tokens, dtype=torch.bool)
        begins[self.query_starts[:-1]] = self.kv_lens == self.query_starts.diff()
        return begins

    def within(self, window: int | None, *, page_tokens: int) -> "AttentionSpans":
        """The same queries without the pages that none of their sequence sees: attention knows a
        token by its distance only."""
        if window is None or int(self.kv_lens.max()) <= window:
            return self
        num_queries = self.query_starts.diff()
        # The first query of a sequence sees furthest back.
        unseen = (self.kv_lens - num_queries - window + 1).clamp_(min=0)
        skipped = unseen.div(page_tokens, rounding_mode="floor")
        kept = self.page_tables.shape[1] - int(skipped.min())
        columns = skipped[:, None] + torch.arange(kept)
        return AttentionSpans(
            page_tables=self.page_tables.gather(
                1, columns.clamp_(max=self.page_tables.shape[1] - 1)
            ),
            kv_lens=self.kv_lens - skipped * page_tokens,
            query_starts=self.query_starts,
        )


class Attend(Protocol):
    """`queries` float32 [num_tokens, num_heads, head_dim], already through `pages.turn`; the
    result has the same shape. The scale is 1 / sqrt(head_dim). With `pages.window`
    a query sees only so many of the last tokens, itself included. Reads the pages, changes nothing;
    what unused places of pages hold, NaN even, has no influence."""

    def __call__(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor: ...
