"""Who attends to what in one step, and the call that every kernel implements."""

from typing import Protocol

import msgspec
import torch

from engine.pool import LayerPages


class AttentionSpans(msgspec.Struct, frozen=True, kw_only=True):
    """A step's tokens lie flat, sequence after sequence; each attends to its own past and itself.

    `page_tables` int64 [num_seqs, max_pages], filled up with page 0; `kv_lens` int64 [num_seqs],
    tokens in the pages, this step's included; `query_starts` int64 [num_seqs + 1]. The queries of
    sequence i are query_starts[i] … query_starts[i+1], its last kv tokens.
    """

    page_tables: torch.Tensor
    kv_lens: torch.Tensor
    query_starts: torch.Tensor


class Attend(Protocol):
    """`queries` float32 [num_tokens, num_heads, head_dim], already through `pages.turn`; the
    result has the same shape. The scale is 1 / sqrt(head_dim). Reads the pages, changes nothing;
    what unused places of pages hold, NaN even, has no influence."""

    def __call__(
        self, queries: torch.Tensor, pages: LayerPages, spans: AttentionSpans
    ) -> torch.Tensor: ...
