"""The fused layer of the kernels against the same layer in parts, on random weights."""

from collections import Counter

import torch
from torch.nn.functional import silu

from engine.attention.reference import attend
from engine.batch import Chunk, build_batch
from engine.kernels.bindings import Kernels
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres
from engine.memory import Arena
from engine.models.fused import FusedLayer
from engine.models.layers import Attention, DecoderLayer, GatedMLP, RMSNorm
from engine.models.linear import Int8Linear
from engine.models.rope import Rope
from engine.models.rope_scaling import RopeShape
from engine.models.step import LayerStep
from engine.shape import ModelShape

_SHAPE = ModelShape(
    num_layers=1, num_heads=4, num_kv_heads=2, head_dim=32, hidden_size=96, intermediate_size=80,
    vocab_size=1, norm_eps=1e-5, max_positions=64, windows=(24,), rope=RopeShape(base=1e4),
)  # fmt: skip
_STEPS = ((0, 40), (40, 1))
"""First position and number of tokens: a prefill, then a decode."""


def layer_error(kernels: Kernels, generator: torch.Generator) -> float:
    """Relative to what the layer adds."""
    plain, fused = _layers(kernels, generator)
    layout = PageLayout.of(_SHAPE, dtype="int8", page_tokens=32)
    rope = Rope(_SHAPE.rope, head_dim=_SHAPE.head_dim, max_positions=_SHAPE.max_positions)
    usual, first = torch.randn(2, 1, layout.num_kv_heads, layout.head_dim, generator=generator)
    centres = KeyCentres(usual=usual, first=first)
    pools = [PagePool(layout, 2, key_centres=centres) for _ in range(2)]
    worst = 0.0
    for first, num_tokens in _STEPS:
        chunk = Chunk(token_ids=[0] * num_tokens, first=first, pages=(1, 0), samples=True)
        batch = build_batch([chunk], page_tokens=layout.page_tokens)
        hidden = torch.randn(num_tokens, _SHAPE.hidden_size, generator=generator)
        step = LayerStep(rotation=rope.at(batch.positions), slots=batch.slots, spans=batch.spans)
        expected = plain(hidden, pools[0].layers[0], step)
        result = fused(hidden.clone(), pools[1].layers[0], step)
        worst = max(worst, float((result - expected).norm() / (expected - hidden).norm()))
    return worst


def _layers(kernels: Kernels, generator: torch.Generator) -> tuple[DecoderLayer, FusedLayer]:
    arena = Arena()

    def projection(num_outputs: int, num_inputs: int, *, biased: bool = False) -> Int8Linear:
        weight = torch.randn(num_outputs, num_inputs, generator=generator) / num_inputs**0.5
        bias = torch.randn(num_outputs, generator=generator) if biased else None
        return Int8Linear(weight, bias, kernels=kernels, arena=arena)

    def norm() -> RMSNorm:
        return RMSNorm(1 + torch.rand(_SHAPE.hidden_size, generator=generator), _SHAPE.norm_eps)

    heads_size = _SHAPE.num_heads * _SHAPE.head_dim
    kv_size = _SHAPE.num_kv_heads * _SHAPE.head_dim
    attention_norm, mlp_norm = norm(), norm()
    qkv = projection(heads_size + 2 * kv_size, _SHAPE.hidden_size, biased=True)
    output = projection(_SHAPE.hidden_size, heads_size)
    gate_up = projection(2 * _SHAPE.intermediate_size, _SHAPE.hidden_size)
    down = projection(_SHAPE.hidden_size, _SHAPE.intermediate_size)
    plain = DecoderLayer(
        attention_norm=attention_norm,
        attention=Attention(qkv=qkv, output=output, shape=_SHAPE, attend=attend),
        mlp_norm=mlp_norm,
        mlp=GatedMLP(gate_up=gate_up, down=down, activation=silu),
    )
    fused = FusedLayer(
        plain, attention_norm=attention_norm, qkv=qkv, output=output, mlp_norm=mlp_norm,
        gate_up=gate_up, down=down, num_heads=_SHAPE.num_heads, kernels=kernels, calls=Counter(),
    )  # fmt: skip
    return plain, fused
