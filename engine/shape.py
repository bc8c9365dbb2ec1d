"""The numbers that describe a decoder-only model."""

import msgspec

from engine.models.rope_scaling import RopeShape


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes as transformers' configs name them."""

    num_layers: int
    num_heads: int
    """Query heads."""
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    norm_eps: float
    max_positions: int
    windows: tuple[int | None, ...]
    """For each layer the tokens that a query sees, itself included; None: all that came before."""
    rope: RopeShape
    local_rope: RopeShape | None = None
    """Of layers that have a window, where theirs is another."""
