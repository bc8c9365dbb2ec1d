"""The mean key of each layer and head, which INT8 pages take off before rounding."""

import torch

from engine.models.calibration import Calibration

_SKIPPED_POSITIONS = 8
"""The first positions gather attention that has nowhere else to go; their keys are outliers."""


def key_centres(calibration: Calibration) -> torch.Tensor:
    """float32 [num_layers, num_kv_heads, head_dim]: means over the text, after RoPE."""
    pool, num_tokens = calibration.pool, calibration.num_tokens
    pages = torch.arange(pool.storage.shape[0], device=pool.storage.device)
    return torch.stack([_mean_key(layer.keys.take(pages), num_tokens) for layer in pool.layers])


def _mean_key(keys: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """`keys` [num_pages, num_kv_heads, page_tokens, head_dim] → [num_kv_heads, head_dim]"""
    by_position = keys.transpose(0, 1).flatten(1, 2)[:, :num_tokens]
    return by_position[:, _SKIPPED_POSITIONS:].mean(dim=1)
