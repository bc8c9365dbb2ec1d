"""A decoder-only model: a flat batch of tokens in, logits out."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch

from engine.batch import StepBatch
from engine.config import ChosenDtype
from engine.kv.pool import LayerPages, PagePool
from engine.models.fused import FusedLayer
from engine.models.graphs import DecodeGraphs
from engine.models.layers import DecoderLayer, Projection, RMSNorm
from engine.models.linear import Int8Linear
from engine.models.rope import Rope
from engine.models.step import LayerStep
from engine.shape import ModelShape


class Model:
    """Weights only; the pages belong to the caller. One forward pass at a time a pool."""

    def __init__(
        self,
        *,
        shape: ModelShape,
        weights: ChosenDtype,
        embedding: torch.Tensor,
        layers: Sequence[DecoderLayer | FusedLayer],
        norm: RMSNorm,
        head: Projection,
        rope: Rope,
        attention_calls: Counter[str],
        local_rope: Rope | None = None,
        embedding_scale: float = 1.0,
        int8_layers: Sequence[Int8Linear] = (),
    ) -> None:
        """`embedding` [vocab_size, hidden_size], fp32 or bf16; `local_rope` is that of layers
        with a window, where it is another; `attention_calls` is counted up by whatever serves."""
        self.shape = shape
        self.weights = weights
        self.attention_calls = attention_calls
        self.int8_layers = int8_layers
        self._embedding = embedding
        self._embedding_scale = embedding_scale
        self._layers = layers
        self._norm = norm
        self._head = head
        self._rope = rope
        self._local_rope = local_rope
        self.device = embedding.device
        self._graphs: DecodeGraphs | None = None
        if self.device.type == "cuda":
            self._graphs = DecodeGraphs(self.compute, attention_calls)

    @torch.inference_mode()
    def forward(self, batch: StepBatch, pool: PagePool) -> torch.Tensor:
        """Computes the batch's tokens, writes their keys and values into the pool's pages, which
        lie on this model's device; the batch may lie elsewhere.

        Returns logits float32 [num_sampled, vocab_size] of `batch.sampled_rows`, on the device and
        valid until the next call.
        """
        batch = batch.on(self.device)
        replayed = None if self._graphs is None else self._graphs.run(batch, pool)
        return self.compute(batch, pool) if replayed is None else replayed

    @torch.inference_mode()
    def compute(self, batch: StepBatch, pool: PagePool) -> torch.Tensor:
        """As `forward`, kernel by kernel, of a batch that lies on the device."""
        hidden = self._embedded(batch)
        steps = self._steps(batch)
        for layer, pages in zip(self._layers, pool.layers, strict=True):
            hidden = layer(hidden, pages, steps(pages))
        return self._head(self._norm(hidden[batch.sampled_rows]))

    @torch.inference_mode()
    def queries(self, batch: StepBatch, pool: PagePool) -> list[torch.Tensor]:
        """What each layer attends with: float32 [num_tokens, num_heads, head_dim], as the pool's
        pages hold keys. Writes what `forward` writes."""
        batch = batch.on(self.device)
        hidden = self._embedded(batch)
        steps = self._steps(batch)
        found = []
        for layer, pages in zip(self._layers, pool.layers, strict=True):
            found.append(layer.queries(hidden, pages, steps(pages)))
            hidden = layer(hidden, pages, steps(pages))
        return found

    def _embedded(self, batch: StepBatch) -> torch.Tensor:
        """[num_tokens, hidden_size]"""
        hidden = self._embedding[batch.token_ids].float()
        return hidden if self._embedding_scale == 1.0 else hidden * self._embedding_scale

    def _steps(self, batch: StepBatch) -> Callable[[LayerPages], LayerStep]:
        """By kind of layer."""

        def turned_by(rope: Rope) -> LayerStep:
            rotation = rope.at(batch.positions)
            return LayerStep(rotation=rotation, slots=batch.slots, spans=batch.spans)

        everywhere = local = turned_by(self._rope)
        if self._local_rope is not None:
            local = turned_by(self._local_rope)
        return lambda pages: everywhere if pages.window is None else local
