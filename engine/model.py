"""A decoder-only model: a flat batch of tokens in, logits out."""

from collections.abc import Sequence

import torch

from engine.batch import StepBatch
from engine.layers import DecoderLayer, Linear, RMSNorm
from engine.pool import PagePool
from engine.rope import Rope
from engine.shape import ModelShape


class Model:
    """Weights only; the pages belong to the caller. One forward pass at a time a pool."""

    def __init__(
        self,
        *,
        shape: ModelShape,
        embedding: torch.Tensor,
        layers: Sequence[DecoderLayer],
        norm: RMSNorm,
        head: Linear,
        rope: Rope,
    ) -> None:
        """`embedding` [vocab_size, hidden_size], fp32 or bf16."""
        self.shape = shape
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._rope = rope

    @property
    def weights(self) -> str:
        """`fp32` or `bf16`."""
        return "bf16" if self._embedding.dtype == torch.bfloat16 else "fp32"

    @torch.inference_mode()
    def forward(self, batch: StepBatch, pool: PagePool) -> torch.Tensor:
        """Computes the batch's tokens, writes their keys and values into the pool's pages.

        Returns logits float32 [num_sampled, vocab_size] of `batch.sampled_rows`.
        """
        hidden = self._embedding[batch.token_ids].float()  # [num_tokens, hidden_size]
        rotation = self._rope.at(batch.positions)
        for layer, pages in zip(self._layers, pool.layers, strict=True):
            hidden = layer(hidden, rotation, pages, batch.slots, batch.spans)
        return self._head(self._norm(hidden[batch.sampled_rows]))
