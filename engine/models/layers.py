"""Parts of a decoder layer. Activations between parts are float32; a linear layer computes in the
type of its weights."""

from collections.abc import Callable

import torch
from torch.nn.functional import linear, rms_norm

from engine.attention.spans import Attend
from engine.kv.pool import LayerPages
from engine.models.rope import Rotation
from engine.models.step import LayerStep
from engine.shape import ModelShape

Projection = Callable[[torch.Tensor], torch.Tensor]
"""A linear layer: float32 [num_tokens, num_inputs] → float32 [num_tokens, num_outputs]."""
Elementwise = Callable[[torch.Tensor], torch.Tensor]
"""float32 of any shape → the same shape."""


class Linear:
    """y = x Wᵀ + b, without a bias in most models."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """`weight` [num_outputs, num_inputs] in fp32 or bf16; `bias` float32 [num_outputs]."""
        self._weight = weight
        self._bias = bias

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """float32 [num_tokens, num_inputs] → float32 [num_tokens, num_outputs]"""
        outputs = linear(inputs.to(self._weight.dtype), self._weight).float()
        return outputs if self._bias is None else outputs + self._bias


class RMSNorm:
    """Zhang and Sennrich, 2019."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self.weight = weight  # float32 [size]
        self.eps = eps

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        return rms_norm(inputs, self.weight.shape, self.weight, self.eps)


class HeadNorm:
    """RMSNorm of each head of queries and keys, with weights of its own for each."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight  # float32 [num_heads + num_kv_heads, head_dim]
        self._eps = eps

    def __call__(self, heads: torch.Tensor) -> torch.Tensor:
        """[num_tokens, num_heads + num_kv_heads, head_dim] → the same shape."""
        return rms_norm(heads, heads.shape[-1:], None, self._eps) * self._weight


def unchanged(inputs: torch.Tensor) -> torch.Tensor:
    """The norm of models that have none there."""
    return inputs


class Attention:
    """Grouped-query attention over the pages of one layer."""

    def __init__(
        self,
        *,
        qkv: Projection,
        output: Projection,
        shape: ModelShape,
        attend: Attend,
        head_norm: Elementwise = unchanged,
    ) -> None:
        """`qkv` gives query, key and value heads in this order. Whatever a model multiplies its
        scores by, other than 1 / sqrt(head_dim), is in the queries that `qkv` or `head_norm`
        gives."""
        self._qkv = qkv
        self._head_norm = head_norm
        self._output = output
        self._shape = shape
        self._attend = attend

    def __call__(self, hidden: torch.Tensor, pages: LayerPages, step: LayerStep) -> torch.Tensor:
        """Writes this step's keys and values, then attends; [num_tokens, hidden_size] both ways."""
        num_heads = self._shape.num_heads
        turned, values = self._heads(hidden, pages, step.rotation)
        begins = step.spans.begins(len(step.slots))
        pages.write(turned[:, num_heads:], values, step.slots, begins)
        attended = self._attend(turned[:, :num_heads], pages, step.spans)
        return self._output(attended.reshape(hidden.shape[0], -1))

    def queries(self, hidden: torch.Tensor, pages: LayerPages, step: LayerStep) -> torch.Tensor:
        """As it would attend with them, [num_tokens, num_heads, head_dim]."""
        return self._heads(hidden, pages, step.rotation)[0][:, : self._shape.num_heads]

    def _heads(
        self, hidden: torch.Tensor, pages: LayerPages, rotation: Rotation
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys, turned, in one; values."""
        shape = self._shape
        heads = self._qkv(hidden).view(hidden.shape[0], -1, shape.head_dim)
        num_turned = shape.num_heads + shape.num_kv_heads
        normed = self._head_norm(heads[:, :num_turned])
        return pages.turn(rotation.turn(normed)), heads[:, num_turned:]


class GatedMLP:
    """down(activation(gate(x)) * up(x)) (Shazeer, GLU variants, 2020)."""

    def __init__(self, *, gate_up: Projection, down: Projection, activation: Elementwise) -> None:
        self._gate_up = gate_up
        self._activation = activation
        self._down = down

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        gate, up = self._gate_up(hidden).chunk(2, dim=-1)
        return self._down(self._activation(gate) * up)


class DecoderLayer:
    """Pre-norm attention and MLP, each added to the residual stream, by some models after another
    norm."""

    def __init__(
        self,
        *,
        attention_norm: RMSNorm,
        attention: Attention,
        mlp_norm: RMSNorm,
        mlp: GatedMLP,
        attention_post_norm: Elementwise = unchanged,
        mlp_post_norm: Elementwise = unchanged,
    ) -> None:
        self._attention_norm = attention_norm
        self._attention = attention
        self._attention_post_norm = attention_post_norm
        self._mlp_norm = mlp_norm
        self._mlp = mlp
        self._mlp_post_norm = mlp_post_norm

    def __call__(self, hidden: torch.Tensor, pages: LayerPages, step: LayerStep) -> torch.Tensor:
        normed = self._attention_norm(hidden)
        attended = self._attention(normed, pages, step)
        hidden = hidden + self._attention_post_norm(attended)
        return hidden + self._mlp_post_norm(self._mlp(self._mlp_norm(hidden)))

    def queries(self, hidden: torch.Tensor, pages: LayerPages, step: LayerStep) -> torch.Tensor:
        """What it would attend with, [num_tokens, num_heads, head_dim]. Changes nothing."""
        return self._attention.queries(self._attention_norm(hidden), pages, step)
