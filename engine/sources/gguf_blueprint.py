"""How a model is built, by the metadata of its GGUF file: llama.cpp's conventions.

They differ from those of the folders that files are converted from: norms of Gemma are written
with the 1 added; the architecture `llama` (also Mistral's) has the rows of queries and keys in
the order of neighbouring pairs; what is the same for all models of a family is not written.
"""

import math
from typing import Any

from engine.errors import ModelUnusable
from engine.models.rope_scaling import (
    Divisors,
    Linear,
    RopeScaling,
    RopeShape,
    Yarn,
    yarn_magnitude,
)
from engine.shape import ModelShape
from engine.sources.blueprint import (
    GEMMA3,
    LLAMA,
    MAX_LAYERS,
    MAX_SIZE,
    QWEN2,
    QWEN3,
    Blueprint,
    Family,
    checked,
)
from engine.sources.gguf_header import GGUFHeader

ROPE_DIVISORS = "rope_freqs.weight"
"""A tensor that is no weight: Llama 3's scaling, worked out."""

_FAMILIES = {"llama": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3, "gemma3": GEMMA3}
_GEMMA3_PERIOD = 6
"""Every sixth layer sees everything."""
_GEMMA3_LOCAL_BASE = 10000.0
_GEMMA3_27B_LAYERS = 62
"""The one size whose attention scale is not that of its heads (as in llama.cpp)."""
_REFUSED = (
    "expert_count", "attn_logit_softcapping", "final_logit_softcapping", "logit_scale",
    "residual_scale", "embedding_scale", "attention.scale", "attention.clamp_kqv",
    "attention.max_alibi_bias", "attention.temperature_scale",
)  # fmt: skip


def neighbouring_pairs(header: GGUFHeader) -> int | None:
    """The head size, where rows of queries and keys are in the order of neighbouring pairs."""
    return _head_dim(header) if header.architecture == "llama" else None


def gguf_family(header: GGUFHeader) -> Family:
    """Raises ModelUnusable."""
    family = _FAMILIES.get(header.architecture)
    if family is None:
        known = ", ".join(_FAMILIES)
        raise ModelUnusable(f"architecture {header.architecture!r} is not supported; {known} are")
    return family


def gguf_blueprint(
    header: GGUFHeader,
    family: Family,
    *,
    vocab_size: int,
    tied: bool,
    rope_divisors: tuple[float, ...] | None,
    max_positions: int,
) -> Blueprint:
    """Raises ModelUnusable for what is not understood."""
    _refuse_unknown(header)
    num_heads, head_dim = _uniform(header, "attention.head_count"), _head_dim(header)
    scaling = _scaling(header) if rope_divisors is None else Divisors(values=rope_divisors)
    local_base = _local_base(header, family)
    shape = ModelShape(
        num_layers=_num_layers(header),
        num_heads=num_heads,
        num_kv_heads=_uniform(header, "attention.head_count_kv", num_heads),
        head_dim=head_dim,
        hidden_size=_required(header, "embedding_length"),
        intermediate_size=_uniform(header, "feed_forward_length"),
        vocab_size=vocab_size,
        norm_eps=float(header.of_architecture("attention.layer_norm_rms_epsilon", 1e-6)),
        max_positions=min(max_positions, _positions(header, scaling)),
        windows=_windows(header, family),
        rope=RopeShape(
            base=float(header.of_architecture("rope.freq_base", 10000.0)), scaling=scaling
        ),
        local_rope=None if local_base is None else RopeShape(base=local_base),
    )
    shape = checked(shape)
    return Blueprint(
        family=family, shape=shape, attention_scale=_attention_scale(family, shape), tied=tied
    )


def _refuse_unknown(header: GGUFHeader) -> None:
    for key in _REFUSED:
        if header.of_architecture(key):
            raise ModelUnusable(f"{header.architecture}.{key} is not supported")
    head_dim = _head_dim(header)
    for key in ("rope.dimension_count", "attention.value_length"):
        if header.of_architecture(key, head_dim) != head_dim:
            raise ModelUnusable(f"{header.architecture}.{key} other than {head_dim}, the size of a "
                                "head, is not supported")  # fmt: skip


def _required(header: GGUFHeader, key: str) -> int:
    value = header.of_architecture(key)
    if value is None:
        raise ModelUnusable(f"the GGUF file lacks {header.architecture}.{key}")
    return _size(value, f"{header.architecture}.{key}")


def _num_layers(header: GGUFHeader) -> int:
    number = _required(header, "block_count")
    if number > MAX_LAYERS:
        raise ModelUnusable(f"{header.architecture}.block_count of {number} is no model's")
    return number


def _size(value: Any, name: str) -> int:
    if not isinstance(value, int) or not 1 <= value <= MAX_SIZE:
        raise ModelUnusable(f"{name} of {value!r} is not in 1 … {MAX_SIZE}")
    return value


def _uniform(header: GGUFHeader, key: str, default: int | None = None) -> int:
    """A number that may be written once, or for each layer."""
    value = header.of_architecture(key, default)
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise ModelUnusable(f"{header.architecture}.{key} that differs by layer is not "
                                "supported")  # fmt: skip
        value = value[0]
    if value is None:
        return _required(header, key)
    return _size(value, f"{header.architecture}.{key}")


def _head_dim(header: GGUFHeader) -> int:
    size = header.of_architecture("attention.key_length")
    if size is not None:
        return _size(size, f"{header.architecture}.attention.key_length")
    return _required(header, "embedding_length") // _uniform(header, "attention.head_count")


def _windows(header: GGUFHeader, family: Family) -> tuple[int | None, ...]:
    window = header.of_architecture("attention.sliding_window") or None
    period = header.of_architecture("attention.sliding_window_pattern")
    layers = range(_num_layers(header))
    if isinstance(period, list):  # for each layer, whether it has the window
        return tuple(window if local else None for local in period)
    if period is None and family is GEMMA3:
        period = _GEMMA3_PERIOD
    return tuple(None if period and (layer + 1) % period == 0 else window for layer in layers)


def _local_base(header: GGUFHeader, family: Family) -> float | None:
    default = _GEMMA3_LOCAL_BASE if family is GEMMA3 else None
    base: Any = header.of_architecture("rope.freq_base_swa", default)
    return None if base is None else float(base)


def _attention_scale(family: Family, shape: ModelShape) -> float:
    if family is GEMMA3 and shape.num_layers == _GEMMA3_27B_LAYERS:
        return math.sqrt(shape.num_heads / shape.hidden_size)
    return 1 / math.sqrt(shape.head_dim)


def _scaling(header: GGUFHeader) -> RopeScaling | None:
    def field(key: str, default: Any = None) -> Any:
        return header.of_architecture(f"rope.scaling.{key}", default)

    factor = float(field("factor", 0) or header.of_architecture("rope.scale_linear", 0) or 1)
    kind = field("type", "none" if factor == 1 else "linear")
    match kind:
        case "none":
            return None
        case "linear":
            return None if factor == 1 else Linear(factor=factor)
        case "yarn":
            attention_factor = field("yarn_attn_factor", field("attn_factor", 1.0))
            return Yarn(
                factor=factor,
                original_positions=int(
                    field("original_context_length", 0) or _required(header, "context_length")
                ),
                beta_fast=float(field("yarn_beta_fast", 32.0)),
                beta_slow=float(field("yarn_beta_slow", 1.0)),
                magnitude=float(attention_factor) * yarn_magnitude(factor),
            )
        case _:
            raise ModelUnusable(f"RoPE scaling {kind!r} is not supported; linear and yarn are")


def _positions(header: GGUFHeader, scaling: RopeScaling | None) -> int:
    positions = _required(header, "context_length")
    if isinstance(scaling, Yarn):
        return max(positions, int(scaling.original_positions * scaling.factor))
    return positions
