"""What an engine's memory holds. Plain arithmetic: no tensor is made, no model is loaded."""

import msgspec

from engine.config import ChosenDtype, EngineConfig, KVDtype
from engine.kv.pages import PageLayout
from engine.shape import ModelShape
from engine.sources.blueprint import Blueprint
from engine.sources.survey import survey
from engine.sources.weights import WeightsFile

_SHORT_TOKENS = 1024
_UNQUANTISED: KVDtype = "bf16"
"""Keys and values of 16 bits, as fp16 has."""
_WEIGHT_BYTES: dict[ChosenDtype, float] = {"fp32": 4, "bf16": 2, "int8": 36 / 32}
"""Of a number in a linear layer. int8: groups of 32 codes with a scale and a minimum in fp16."""
_EMBEDDING_BYTES: dict[ChosenDtype, int] = {"fp32": 4, "bf16": 2, "int8": 2}


class CachePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What fits into the memory for pages, if they are kept in one way."""

    kept_as: str
    bytes_per_token: int
    num_tokens: int
    num_longest: int
    """Sequences that are as long as the longest context."""
    num_short: int
    """Sequences of 1,024 tokens, or as long as the longest context where that is shorter."""


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Of one engine. `caches`: the configured one first, then fp16, then fp16 with a KV head for
    each query head, which is what a cache takes that knows nothing of shared heads."""

    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_parameters: int
    weights: ChosenDtype
    weights_bytes: int
    kv_memory_bytes: int
    page_tokens: int
    max_context: int
    """The configured one, or the model's where that is shorter."""
    caches: tuple[CachePlan, ...]


def plan_memory(config: EngineConfig, file: WeightsFile) -> MemoryPlan:
    """Where the config says `auto`: for a CPU with the kernels of `engine.kernels`. Reads the
    files' headers. Raises ModelUnusable."""
    return plan_of(survey(file.path, max_positions=config.max_context), config)


def plan_of(blueprint: Blueprint, config: EngineConfig) -> MemoryPlan:
    """See `plan_memory`."""
    shape = blueprint.shape
    weights = _chosen(config)
    unaware = msgspec.structs.replace(shape, num_kv_heads=shape.num_heads)
    return MemoryPlan(
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        num_parameters=_num_parameters(blueprint),
        weights=weights,
        weights_bytes=_weights_bytes(blueprint, weights),
        kv_memory_bytes=config.kv_memory_bytes,
        page_tokens=config.page_tokens,
        max_context=shape.max_positions,
        caches=(
            _cache_plan(config.kv_dtype, shape, config, dtype=config.kv_dtype),
            _cache_plan("fp16", shape, config, dtype=_UNQUANTISED),
            _cache_plan("fp16, a KV head each", unaware, config, dtype=_UNQUANTISED),
        ),
    )


def _cache_plan(
    kept_as: str, shape: ModelShape, config: EngineConfig, *, dtype: KVDtype
) -> CachePlan:
    layout = PageLayout.of(
        shape, dtype=dtype, page_tokens=config.page_tokens, for_cpu=config.device != "cuda"
    )
    num_pages = config.kv_memory_bytes // layout.page_bytes
    return CachePlan(
        kept_as=kept_as,
        bytes_per_token=layout.bytes_per_token,
        num_tokens=num_pages * layout.page_tokens,
        num_longest=num_pages // layout.num_pages(shape.max_positions),
        num_short=num_pages // layout.num_pages(min(_SHORT_TOKENS, shape.max_positions)),
    )


def _chosen(config: EngineConfig) -> ChosenDtype:
    if config.device == "cuda":
        return "fp32" if config.weights == "fp32" else "bf16"
    return "int8" if config.weights == "auto" else config.weights


def _num_parameters(blueprint: Blueprint) -> int:
    shape = blueprint.shape
    num_vocabularies = 1 if blueprint.tied else 2
    return _linear_size(shape) + num_vocabularies * shape.vocab_size * shape.hidden_size


def _weights_bytes(blueprint: Blueprint, weights: ChosenDtype) -> int:
    """Linear layers with the output layer, and the embedding; norms are next to nothing."""
    vocabulary = blueprint.shape.vocab_size * blueprint.shape.hidden_size
    # Unrounded, the output layer of a tied model is the embedding itself.
    shared = blueprint.tied and weights == "fp32"
    embedding = 0 if shared else vocabulary * _EMBEDDING_BYTES[weights]
    linear = _linear_size(blueprint.shape) + vocabulary
    return int(linear * _WEIGHT_BYTES[weights]) + embedding


def _linear_size(shape: ModelShape) -> int:
    """Numbers in the linear layers, but for the output layer."""
    heads = 2 * shape.num_heads + 2 * shape.num_kv_heads
    by_token = heads * shape.head_dim + 3 * shape.intermediate_size
    return shape.num_layers * shape.hidden_size * by_token
