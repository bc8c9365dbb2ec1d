"""Builds a model out of its source, after its blueprint."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch.nn.functional import gelu, silu

from engine.attention.cpu import CPUAttention, TiledAttention
from engine.attention.devices import PageKernels
from engine.attention.spans import Attend
from engine.config import ChosenDtype, WeightsDtype
from engine.device import CPU
from engine.errors import ModelUnusable
from engine.kernels.bindings import Kernels
from engine.models.fused import FusedLayer
from engine.models.layers import (
    Attention,
    DecoderLayer,
    Elementwise,
    GatedMLP,
    HeadNorm,
    Linear,
    RMSNorm,
    unchanged,
)
from engine.models.linear import Int8Linear
from engine.models.model import Model
from engine.models.projections import TORCH_DTYPE, Projections, faster_dtype
from engine.models.rope import Rope
from engine.models.rope_scaling import RopeShape
from engine.sources.blueprint import Blueprint
from engine.sources.source import Source

Progress = Callable[[float], None]
"""Called with the share that is done, 0 … 1."""

_PROBE_LAYERS = 4
_EMBEDDING = "token_embd.weight"
_HEAD = "output.weight"
_ACTIVATIONS: dict[str, Elementwise] = {
    "silu": silu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
}


def load_model(
    source: Source,
    *,
    weights: WeightsDtype,
    max_positions: int,
    progress: Progress,
    kernels: Kernels | None = None,
    tiled: TiledAttention | None = None,
    device: torch.device = CPU,
    page_kernels: PageKernels | None = None,
) -> Model:
    """Reads all tensors. Without `kernels`, torch computes everything but what `tiled`, attention
    over INT8 pages, is given for. With `page_kernels` they attend, on `device`; `kernels` and
    `tiled` are for the CPU. Raises ModelUnusable for what it does not know."""
    blueprint = source.blueprint(max_positions=max_positions)
    tensors = _Tensors(source, device)
    chosen = _chosen(weights, tensors, blueprint, kernels)
    if kernels is not None:
        tiled = TiledAttention(name="cpp", attend=kernels.attend, grouped=True)
    calls: Counter[str] = Counter()
    attend = page_kernels.attention(calls) if page_kernels else CPUAttention(tiled, calls)
    builder = _Builder(tensors, blueprint, Projections(chosen, kernels), kernels, attend, calls)
    model = builder.build(progress)
    tensors.check_all_read()
    return model


class _Tensors:
    """Remembers what was read: what a model has and nobody asked for, we do not understand."""

    def __init__(self, source: Source, device: torch.device) -> None:
        self._source = source
        self.device = device
        self._read: set[str] = set()

    def __call__(self, name: str) -> torch.Tensor:
        self._read.add(name)
        return self._source.tensor(name).to(self.device)

    def optional(self, name: str) -> torch.Tensor | None:
        return self(name) if name in self._source.names else None

    def check_all_read(self) -> None:
        rest = sorted(self._source.names - self._read)
        if rest:
            more = f" and {len(rest) - 3} more" if len(rest) > 3 else ""
            raise ModelUnusable(
                f"{self._source.path} holds tensors that its family does not have: "
                f"{', '.join(rest[:3])}{more}"
            )


class _Builder:
    """Parts of the model, made in the order of its layers."""

    def __init__(
        self,
        tensors: _Tensors,
        blueprint: Blueprint,
        projections: Projections,
        kernels: Kernels | None,
        attend: Attend,
        calls: Counter[str],
    ) -> None:
        self._tensors = tensors
        self._family = blueprint.family
        self._shape = blueprint.shape
        self._tied = blueprint.tied
        self._projections = projections
        self._kernels = kernels
        self._attend = attend
        self._calls = calls
        # Kernels multiply scores by 1 / sqrt(head_dim); the rest is put into the queries.
        self._query_factor = blueprint.attention_scale * math.sqrt(self._shape.head_dim)

    def build(self, progress: Progress) -> Model:
        shape = self._shape
        layers = []
        for index in range(shape.num_layers):
            layers.append(self._layer(f"blk.{index}"))
            progress((index + 1) / (shape.num_layers + 2))
        embedding = self._tensors(_EMBEDDING)
        head = embedding if self._tied else self._tensors(_HEAD)
        return Model(
            shape=shape,
            weights=self._projections.weights,
            embedding=embedding.to(TORCH_DTYPE[self._projections.weights]),
            embedding_scale=math.sqrt(shape.hidden_size) if self._family.scaled_embedding else 1.0,
            layers=layers,
            norm=self._norm("output_norm.weight"),
            head=self._projections.make(head, None),
            rope=self._rope(shape.rope),
            local_rope=None if shape.local_rope is None else self._rope(shape.local_rope),
            attention_calls=self._calls,
            int8_layers=self._projections.int8_layers,
        )

    def _layer(self, name: str) -> DecoderLayer | FusedLayer:
        attention_norm = self._norm(f"{name}.attn_norm.weight")
        mlp_norm = self._norm(f"{name}.ffn_norm.weight")
        qkv = self._qkv(name)
        output = self._linear(f"{name}.attn_output")
        gate_up = self._linear(f"{name}.ffn_gate", f"{name}.ffn_up")
        down = self._linear(f"{name}.ffn_down")
        plain = DecoderLayer(
            attention_norm=attention_norm,
            attention=Attention(
                qkv=qkv,
                output=output,
                shape=self._shape,
                attend=self._attend,
                head_norm=self._head_norm(name),
            ),
            attention_post_norm=self._post_norm(f"{name}.post_attention_norm.weight"),
            mlp_norm=mlp_norm,
            mlp=GatedMLP(
                gate_up=gate_up, down=down, activation=_ACTIVATIONS[self._family.activation]
            ),
            mlp_post_norm=self._post_norm(f"{name}.post_ffw_norm.weight"),
        )
        if self._kernels is None or not isinstance(qkv, Int8Linear) or not self._family.plain:
            return plain
        # All projections of a model are of one kind.
        assert isinstance(output, Int8Linear)
        assert isinstance(gate_up, Int8Linear)
        assert isinstance(down, Int8Linear)
        return FusedLayer(
            plain,
            attention_norm=attention_norm,
            qkv=qkv,
            output=output,
            mlp_norm=mlp_norm,
            gate_up=gate_up,
            down=down,
            num_heads=self._shape.num_heads,
            kernels=self._kernels,
            calls=self._calls,
        )

    def _qkv(self, name: str) -> Linear | Int8Linear:
        parts = [f"{name}.attn_{part}" for part in ("q", "k", "v")]
        weight, bias = self._stacked(parts)
        if self._family.qkv_bias and bias is None:
            raise ModelUnusable(f"{self._family.name} without {parts[0]}.bias is not supported")
        if not self._family.head_norms:  # after which a factor before them would be lost
            num_queries = self._shape.num_heads * self._shape.head_dim
            weight[:num_queries] *= self._query_factor
            if bias is not None:
                bias[:num_queries] *= self._query_factor
        return self._projections.make(weight, bias)

    def _linear(self, *names: str) -> Linear | Int8Linear:
        return self._projections.make(*self._stacked(names))

    def _stacked(self, names: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Several matrices of the same inputs become one, and so their biases."""
        weights = [self._tensors(f"{name}.weight") for name in names]
        found = [self._tensors.optional(f"{name}.bias") for name in names]
        biases = [bias for bias in found if bias is not None]
        if not biases:
            return torch.cat(weights), None
        if len(biases) < len(names):
            raise ModelUnusable(f"of {', '.join(names)} only some have a bias: not supported")
        return torch.cat(weights), torch.cat(biases)

    def _head_norm(self, name: str) -> Elementwise:
        if not self._family.head_norms:
            return unchanged
        query = self._tensors(f"{name}.attn_q_norm.weight") * self._query_factor
        key = self._tensors(f"{name}.attn_k_norm.weight")
        heads = [query] * self._shape.num_heads + [key] * self._shape.num_kv_heads
        return HeadNorm(torch.stack(heads), self._shape.norm_eps)

    def _post_norm(self, name: str) -> Elementwise:
        return self._norm(name) if self._family.post_norms else unchanged

    def _norm(self, name: str) -> RMSNorm:
        return RMSNorm(self._tensors(name), self._shape.norm_eps)

    def _rope(self, rope: RopeShape) -> Rope:
        shape = self._shape
        return Rope(
            rope,
            head_dim=shape.head_dim,
            max_positions=shape.max_positions,
            device=self._tensors.device,
        )


def _chosen(
    weights: WeightsDtype, tensors: _Tensors, blueprint: Blueprint, kernels: Kernels | None
) -> ChosenDtype:
    if weights in ("fp32", "bf16"):
        return weights
    if kernels is not None:
        return "int8"
    probed = range(min(_PROBE_LAYERS, blueprint.shape.num_layers))
    kinds = ("gate", "up", "down")
    names = [f"blk.{index}.ffn_{kind}.weight" for index in probed for kind in kinds]
    return faster_dtype([tensors(name) for name in names])
