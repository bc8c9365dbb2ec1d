"""The mean keys of each layer and head, which INT8 pages take off before rounding."""

import torch

from engine.kv.pool import PagePool
from engine.kv.quant import KeyCentres
from engine.models.calibration import Calibration

_SKIPPED_POSITIONS = 8
"""The first positions gather attention that has nowhere else to go; their keys are outliers."""


def key_centres(calibration: Calibration) -> KeyCentres:
    """Means over the text, and over the first keys of several sequences, after RoPE."""
    text = _keys(calibration.text).flatten(2, 3)[:, :, : calibration.num_tokens]
    return KeyCentres(
        usual=text[:, :, _SKIPPED_POSITIONS:].mean(dim=2),
        first=_keys(calibration.beginnings)[:, :, :, 0].mean(dim=2),
    )


def _keys(pool: PagePool) -> torch.Tensor:
    """float32 [num_layers, num_kv_heads, num_pages, page_tokens, head_dim]"""
    pages = torch.arange(pool.storage.shape[0], device=pool.storage.device)
    return torch.stack([layer.keys.take(pages).transpose(0, 1) for layer in pool.layers])
