"""Models out of GGUF files, by architecture."""

import math
import time
from collections import Counter
from collections.abc import Callable

import torch

from engine.attention.cpu import CPUAttention, TiledAttention
from engine.config import ChosenDtype, WeightsDtype
from engine.errors import ModelUnusable
from engine.fused import FusedLayer
from engine.gguf import GGUFFile
from engine.kernels.bindings import Kernels
from engine.layers import Attention, DecoderLayer, GatedMLP, Linear, RMSNorm
from engine.linear import Int8Linear
from engine.memory import Arena
from engine.model import Model
from engine.rope import Rope
from engine.shape import ModelShape

Progress = Callable[[float], None]
"""Called with the share that is done, 0 … 1."""

_TORCH_DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}
"""Of what torch computes; with int8, only the embedding is left to it."""
_PROBE_LAYERS = 4
_PROBE_RUNS = 8
_PROBE_TOKENS = 16


def load_model(
    file: GGUFFile,
    *,
    weights: WeightsDtype,
    max_positions: int,
    progress: Progress,
    kernels: Kernels | None = None,
    tiled: TiledAttention | None = None,
) -> Model:
    """Reads all tensors. Without `kernels`, torch computes everything but what `tiled`, attention
    over INT8 pages, is given for. Raises ModelUnusable for what it does not know."""
    if file.architecture != "llama":
        raise ModelUnusable(f"architecture {file.architecture!r} is not supported; llama is")
    if file.of_architecture("rope.scaling.type", "none") != "none":
        raise ModelUnusable("scaled RoPE is not supported")
    shape = _llama_shape(file, max_positions)
    return _LlamaLoader(file, shape, weights, kernels, tiled).load(progress)


def _llama_shape(file: GGUFFile, max_positions: int) -> ModelShape:
    field = file.of_architecture
    num_heads = int(field("attention.head_count"))
    hidden_size = int(field("embedding_length"))
    return ModelShape(
        num_layers=int(field("block_count")),
        num_heads=num_heads,
        num_kv_heads=int(field("attention.head_count_kv", num_heads)),
        head_dim=int(field("attention.key_length", hidden_size // num_heads)),
        hidden_size=hidden_size,
        intermediate_size=int(field("feed_forward_length")),
        vocab_size=file.shape("token_embd.weight")[0],
        norm_eps=float(field("attention.layer_norm_rms_epsilon")),
        rope_base=float(field("rope.freq_base", 10000.0)),
        max_positions=min(max_positions, int(field("context_length"))),
        windows=(None,) * int(field("block_count")),
    )


class _LlamaLoader:
    """Tensor names and layout of llama.cpp's `llama` architecture."""

    def __init__(
        self,
        file: GGUFFile,
        shape: ModelShape,
        weights: WeightsDtype,
        kernels: Kernels | None,
        tiled: TiledAttention | None,
    ) -> None:
        self._file = file
        self._shape = shape
        self._kernels = kernels
        self._tiled = tiled
        if kernels is not None:
            self._tiled = TiledAttention(name="cpp", attend=kernels.attend)
        self._arena = Arena()
        self._calls: Counter[str] = Counter()
        self._int8_layers: list[Int8Linear] = []
        self._weights = self._chosen(weights)

    def load(self, progress: Progress) -> Model:
        shape = self._shape
        layers = []
        for index in range(shape.num_layers):
            layers.append(self._layer(f"blk.{index}"))
            progress((index + 1) / (shape.num_layers + 2))
        embedding = self._tensor("token_embd.weight")
        tied = not self._file.has_tensor("output.weight")
        return Model(
            shape=shape,
            weights=self._weights,
            embedding=embedding.to(_TORCH_DTYPE[self._weights]),
            layers=layers,
            norm=self._norm("output_norm.weight"),
            head=self._linear("token_embd.weight" if tied else "output.weight"),
            rope=Rope(
                head_dim=shape.head_dim,
                base=shape.rope_base,
                max_positions=shape.max_positions,
            ),
            attention_calls=self._calls,
            int8_layers=self._int8_layers,
        )

    def _layer(self, name: str) -> DecoderLayer | FusedLayer:
        attention_norm = self._norm(f"{name}.attn_norm.weight")
        mlp_norm = self._norm(f"{name}.ffn_norm.weight")
        qkv = self._projection(self._qkv(name))
        output = self._linear(f"{name}.attn_output.weight")
        gate_up = self._linear(f"{name}.ffn_gate.weight", f"{name}.ffn_up.weight")
        down = self._linear(f"{name}.ffn_down.weight")
        attend = CPUAttention(self._tiled, self._calls)
        plain = DecoderLayer(
            attention_norm=attention_norm,
            attention=Attention(qkv=qkv, output=output, shape=self._shape, attend=attend),
            mlp_norm=mlp_norm,
            mlp=GatedMLP(gate_up=gate_up, down=down),
        )
        if self._kernels is None or not isinstance(qkv, Int8Linear):
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

    def _qkv(self, name: str) -> torch.Tensor:
        queries = _half_split(self._tensor(f"{name}.attn_q.weight"), self._shape.head_dim)
        keys = _half_split(self._tensor(f"{name}.attn_k.weight"), self._shape.head_dim)
        values = self._tensor(f"{name}.attn_v.weight")
        return torch.cat((queries, keys, values))

    def _linear(self, *names: str) -> Linear | Int8Linear:
        """Several matrices of the same inputs become one."""
        return self._projection(torch.cat([self._tensor(name) for name in names]))

    def _projection(self, weight: torch.Tensor) -> Linear | Int8Linear:
        if self._weights == "int8":
            assert self._kernels is not None
            layer = Int8Linear(weight, kernels=self._kernels, arena=self._arena)
            self._int8_layers.append(layer)
            return layer
        return Linear(weight.to(_TORCH_DTYPE[self._weights]))

    def _norm(self, name: str) -> RMSNorm:
        return RMSNorm(self._tensor(name), self._shape.norm_eps)

    def _tensor(self, name: str) -> torch.Tensor:
        return torch.from_numpy(self._file.tensor(name))

    def _chosen(self, weights: WeightsDtype) -> ChosenDtype:
        if weights in ("fp32", "bf16"):
            return weights
        if self._kernels is not None:
            return "int8"
        probed = range(min(_PROBE_LAYERS, self._shape.num_layers))
        kinds = ("gate", "up", "down")
        names = [f"blk.{index}.ffn_{kind}.weight" for index in probed for kind in kinds]
        return _faster_dtype([self._tensor(name) for name in names])


def _half_split(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """llama.cpp orders the rows of a head for a RoPE of neighbouring pairs (0,1), (2,3) …; ours
    pairs a channel with the one half a head away."""
    rows, inputs = weight.shape
    return weight.view(-1, head_dim // 2, 2, inputs).transpose(1, 2).reshape(rows, inputs)


@torch.inference_mode()
def _faster_dtype(matrices: list[torch.Tensor]) -> ChosenDtype:
    """Times a decode and a short prefill through some of the model's own matrices. Types take
    turns and the best run counts, so that what else the machine does weighs little."""
    dtypes = (torch.float32, torch.bfloat16)
    layers = {dtype: [Linear(matrix.to(dtype)) for matrix in matrices] for dtype in dtypes}
    total_s = dict.fromkeys(dtypes, 0.0)
    for num_tokens in (1, _PROBE_TOKENS):
        inputs = [torch.ones(num_tokens, matrix.shape[1]) for matrix in matrices]
        best_s = dict.fromkeys(dtypes, math.inf)
        for dtype in dtypes * _PROBE_RUNS:
            started = time.perf_counter()
            for layer, values in zip(layers[dtype], inputs, strict=True):
                layer(values)
            best_s[dtype] = min(best_s[dtype], time.perf_counter() - started)
        for dtype in dtypes:
            total_s[dtype] += best_s[dtype]
    return "fp32" if total_s[torch.float32] < total_s[torch.bfloat16] else "bf16"
