"""How a model is built, by the config.json of its folder: the conventions of transformers, old and
new. What a config leaves out has the value that transformers gives it."""

import math
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from engine.errors import ModelUnusable
from engine.models.rope_scaling import Linear, Llama3, RopeScaling, RopeShape, Yarn, yarn_magnitude
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

_FAMILIES = {
    "llama": LLAMA, "mistral": LLAMA, "qwen2": QWEN2, "qwen3": QWEN3, "gemma3_text": GEMMA3,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen3": {"head_dim": 128},
    "gemma3_text": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "tie_word_embeddings": True,
    },
}  # fmt: skip
_IGNORE_WINDOW = ("llama",)
"""Where transformers reads no `sliding_window`, whatever a config says."""
_WITH_TEXT = {"gemma3": "gemma3_text"}
"""Models of text and images: the part for text is served."""
_ACTIVATIONS = {"silu": ("silu", "swish"), "gelu_tanh": ("gelu_pytorch_tanh",)}
_T = TypeVar("_T")
_Size = Annotated[int, Meta(ge=1, le=MAX_SIZE)]
_Positive = Annotated[float, Meta(gt=0)]
_LOCAL = "sliding_attention"
_GLOBAL = "full_attention"


class _Config(msgspec.Struct, frozen=True, kw_only=True):
    """What we read of a config.json; all else is either of no matter or found in the tensors."""

    model_type: str
    hidden_size: _Size
    intermediate_size: _Size
    num_hidden_layers: Annotated[int, Meta(ge=1, le=MAX_LAYERS)]
    num_attention_heads: _Size
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    max_position_embeddings: _Size = 2048
    rms_norm_eps: float = 1e-6
    hidden_act: str | None = None
    hidden_activation: str | None = None
    tie_word_embeddings: bool | None = None
    rope_theta: _Positive | None = None
    rope_local_base_freq: _Positive | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    sliding_window: int | None = None
    sliding_window_pattern: int | None = None
    use_sliding_window: bool | None = None
    max_window_layers: int = 28
    layer_types: tuple[str, ...] | None = None
    query_pre_attn_scalar: _Positive | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    use_bidirectional_attention: bool | None = None
    quantization_config: dict[str, Any] | None = None


class _RopeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`rope_parameters`, or the older `rope_scaling` with the base beside it."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: _Positive | None = None
    factor: _Positive | None = None
    original_max_position_embeddings: _Size | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float | None = None
    beta_slow: float | None = None
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    partial_rotary_factor: float = 1.0
    finetuned: bool | None = None  # says nothing about the computation


def folder_family(raw: dict[str, Any]) -> Family:
    """Of a config.json's content. Raises ModelUnusable."""
    kind = _text_config(raw).get("model_type")
    family = _FAMILIES.get(str(kind))
    if family is None:
        known = ", ".join(_FAMILIES)
        raise ModelUnusable(f"model_type {kind!r} is not supported; {known} are")
    return family


def folder_blueprint(
    raw: dict[str, Any], *, vocab_size: int, has_head: bool, max_positions: int
) -> Blueprint:
    """`raw` as config.json has it; `has_head`: there is a tensor for the output layer. Raises
    ModelUnusable for what is not understood."""
    family, text = folder_family(raw), _text_config(raw)
    config = _converted(text, _Config, "config.json")
    _refuse_unknown(config, family)
    head_dim = config.head_dim or config.hidden_size // config.num_attention_heads
    rope = _rope(config, _GLOBAL, config.rope_theta or 10000.0)
    local = _rope(config, _LOCAL, config.rope_local_base_freq) if family is GEMMA3 else None
    scale = config.query_pre_attn_scalar or head_dim
    shape = ModelShape(
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=head_dim,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        vocab_size=vocab_size,
        norm_eps=config.rms_norm_eps,
        max_positions=min(max_positions, _positions(config, rope.scaling)),
        windows=_windows(config, family),
        rope=rope,
        local_rope=local,
    )
    tied = bool(config.tie_word_embeddings) or not has_head
    return Blueprint(
        family=family, shape=checked(shape), attention_scale=1 / math.sqrt(scale), tied=tied
    )


def _text_config(raw: dict[str, Any]) -> dict[str, Any]:
    """Of the text model, with the defaults of its type."""
    kind = raw.get("model_type")
    if isinstance(kind, str) and kind in _WITH_TEXT:
        outer = {key: raw[key] for key in ("tie_word_embeddings",) if key in raw}
        raw = {"model_type": _WITH_TEXT[kind], **outer, **raw.get("text_config", {})}
    return {**_DEFAULTS.get(str(raw.get("model_type")), {}), **raw}


def _refuse_unknown(config: _Config, family: Family) -> None:
    for name in ("attn_logit_softcapping", "final_logit_softcapping", "quantization_config",
                 "use_bidirectional_attention"):  # fmt: skip
        if getattr(config, name):
            raise ModelUnusable(f"config.json: {name} is not supported")
    activation = config.hidden_activation or config.hidden_act
    if activation is not None and activation not in _ACTIVATIONS[family.activation]:
        raise ModelUnusable(f"config.json: activation {activation!r} is not supported with "
                            f"{family.name}")  # fmt: skip
    unknown = set(config.layer_types or ()) - {_LOCAL, _GLOBAL}
    if unknown:
        raise ModelUnusable(f"config.json: layer_types {sorted(unknown)} are not supported")


def _windows(config: _Config, family: Family) -> tuple[int | None, ...]:
    layers = range(config.num_hidden_layers)
    window = None if config.model_type in _IGNORE_WINDOW else config.sliding_window
    if family in (QWEN2, QWEN3) and not config.use_sliding_window:
        window = None
    if config.layer_types is not None:
        return tuple(window if kind == _LOCAL else None for kind in config.layer_types)
    if family is GEMMA3:
        period = config.sliding_window_pattern or 6
        return tuple(window if (layer + 1) % period else None for layer in layers)
    if family in (QWEN2, QWEN3):
        return tuple(window if layer >= config.max_window_layers else None for layer in layers)
    return (window,) * config.num_hidden_layers


def _rope(config: _Config, layers: str, base: float | None) -> RopeShape:
    """Of layers of one type. `base` where neither form of the config names one."""
    raw = config.rope_parameters
    if raw is not None:
        raw = raw.get(layers, raw if _GLOBAL not in raw else {})
    elif layers == _GLOBAL:
        raw = config.rope_scaling
    rope = _converted(raw or {}, _RopeConfig, "config.json: RoPE")
    if rope.partial_rotary_factor != 1.0:
        raise ModelUnusable("config.json: RoPE over a part of each head is not supported")
    chosen = rope.rope_theta or base
    assert chosen is not None
    return RopeShape(base=chosen, scaling=_scaling(rope, config))


def _scaling(rope: _RopeConfig, config: _Config) -> RopeScaling | None:
    original = rope.original_max_position_embeddings or config.max_position_embeddings
    kind, factor = rope.rope_type or rope.type or "default", rope.factor
    if kind == "yarn" and factor is None:
        factor = config.max_position_embeddings / original
    match kind, factor:
        # Dynamic scaling begins beyond the original context. We end there: pages hold keys that
        # were turned before it would begin.
        case ("default", _) | ("dynamic", _):
            return None
        case "linear", float():
            return Linear(factor=factor)
        case "llama3", float():
            return Llama3(
                factor=factor,
                low_freq_factor=rope.low_freq_factor,
                high_freq_factor=rope.high_freq_factor,
                original_positions=original,
            )
        case "yarn", float():
            return Yarn(
                factor=factor,
                original_positions=original,
                beta_fast=rope.beta_fast or 32.0,
                beta_slow=rope.beta_slow or 1.0,
                magnitude=_magnitude(rope, factor),
                truncate=rope.truncate,
            )
        case _:
            raise ModelUnusable(f"config.json: RoPE of type {kind!r} with factor {factor} is not "
                                "supported; linear, llama3, yarn and dynamic are")  # fmt: skip


def _magnitude(rope: _RopeConfig, factor: float) -> float | None:
    if rope.attention_factor is None and rope.mscale and rope.mscale_all_dim:
        return yarn_magnitude(factor, rope.mscale) / yarn_magnitude(factor, rope.mscale_all_dim)
    return rope.attention_factor


def _positions(config: _Config, scaling: RopeScaling | None) -> int:
    if isinstance(scaling, Yarn):
        stretched = int(scaling.original_positions * scaling.factor)
        return max(config.max_position_embeddings, stretched)
    return config.max_position_embeddings


def _converted(raw: dict[str, Any], kind: type[_T], where: str) -> _T:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ModelUnusable(f"{where}: {error}") from error
