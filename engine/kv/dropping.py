"""Takes out of a prompt's pages what matters little, once the prompt is computed.

The last tokens of the prompt ask what is to be answered; what they attend to is what the answer
will need (Li et al., SnapKV, 2024). Each KV head keeps tokens of its own choice, all the same
number, so that one page table serves them all. Their keys carry their positions.
"""

import math

import torch
from torch.nn.functional import max_pool1d

from engine.attention.reference import keys_in_order
from engine.batch import Chunk, build_batch
from engine.kv.pool import LayerPages, PagePool
from engine.kv.retention import OBSERVED_TOKENS, Selection
from engine.kv.vectors import PagedVectors
from engine.models.model import Model

_POOLED = 7
"""What stands around an important token is kept with it (as in the paper)."""


class Dropper:
    """For one model and its pool."""

    def __init__(self, model: Model, pool: PagePool) -> None:
        self._model = model
        self._pool = pool

    @torch.inference_mode()
    def drop(self, prompt_ids: list[int], pages: list[int], selection: Selection) -> None:
        """`pages` hold the whole prompt, and belong to nobody else. The first of them hold
        `selection.keep` tokens afterwards; the others nothing of worth."""
        table = torch.tensor(pages, device=self._model.device)
        queries = self._queries(prompt_ids, pages)
        for layer, asked in zip(self._pool.layers, queries, strict=True):
            if layer.window is None:
                kept = self._important(asked, layer, table, selection)
            else:  # sees no further back than this
                kept = self._last(layer, selection, table.device)
            _compact(layer, table, kept)

    def _queries(self, prompt_ids: list[int], pages: list[int]) -> list[torch.Tensor]:
        """Of the last tokens, by layer; their keys and values are written once more, the same."""
        first = len(prompt_ids) - OBSERVED_TOKENS
        chunk = Chunk(token_ids=prompt_ids[first:], first=first, pages=pages, samples=True)
        batch = build_batch([chunk], page_tokens=self._pool.layout.page_tokens)
        return self._model.queries(batch, self._pool)

    def _important(
        self, queries: torch.Tensor, layer: LayerPages, table: torch.Tensor, selection: Selection
    ) -> torch.Tensor:
        """The tokens that stay, int64 [num_kv_heads, keep], ascending."""
        keys = keys_in_order(layer, table, selection.num_prompt)
        weights = attention_received(queries, keys)
        pooled = max_pool1d(weights, _POOLED, stride=1, padding=_POOLED // 2)
        pooled[:, : selection.sinks] = math.inf
        pooled[:, -OBSERVED_TOKENS:] = math.inf
        return pooled.topk(selection.keep, dim=1).indices.sort(dim=1).values

    def _last(self, layer: LayerPages, selection: Selection, device: torch.device) -> torch.Tensor:
        first = selection.num_prompt - selection.keep
        last = torch.arange(first, selection.num_prompt, device=device)
        return last.expand(layer.layout.num_kv_heads, -1)


def attention_received(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """`queries` [num_queries, num_heads, head_dim], of the last tokens; `keys` [num_kv_heads,
    num_kv, head_dim] → how much of it each key gets, summed over queries and the query heads of
    its KV head, [num_kv_heads, num_kv]."""
    num_queries, num_heads, head_dim = queries.shape
    num_kv_heads, num_kv, _ = keys.shape
    grouped = queries.view(num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = grouped.permute(1, 2, 0, 3).flatten(1, 2) @ keys.mT / math.sqrt(head_dim)
    by_query = scores.view(num_kv_heads, -1, num_queries, num_kv)
    ahead = torch.ones(num_queries, num_kv, dtype=torch.bool, device=keys.device)
    ahead.triu_(num_kv - num_queries + 1)
    return by_query.masked_fill_(ahead, -math.inf).softmax(dim=-1).sum(dim=(1, 2))


def _compact(layer: LayerPages, table: torch.Tensor, kept: torch.Tensor) -> None:
    """Tokens `kept` [num_kv_heads, keep] move to the front, as they are: nothing is rounded."""
    page_tokens = layer.layout.page_tokens
    at = torch.arange(kept.shape[1], device=table.device)
    pages, places = table[at // page_tokens], at % page_tokens
    for part in (layer.keys, layer.values):
        _move(part, table, kept, pages=pages, places=places)
    for scales in (layer.key_scales, layer.value_scales):
        if scales is None:
            continue
        in_line = scales.index_select(0, table).transpose(0, 1).flatten(1, 2)
        groups = in_line.view(len(kept), -1, in_line.shape[1])  # by KV head
        chosen = groups.gather(2, kept[:, None].expand(-1, groups.shape[1], -1))
        scales[pages, :, places] = chosen.flatten(0, 1).T


def _move(
    part: PagedVectors,
    table: torch.Tensor,
    kept: torch.Tensor,
    *,
    pages: torch.Tensor,
    places: torch.Tensor,
) -> None:
    vectors = part.take(table).transpose(0, 1).flatten(1, 2)  # [num_kv_heads, num_kv, head_dim]
    chosen = vectors.gather(1, kept[:, :, None].expand(-1, -1, vectors.shape[2]))
    part.put(pages, places, chosen.transpose(0, 1).contiguous())
