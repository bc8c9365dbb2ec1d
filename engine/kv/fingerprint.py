"""What decides, besides the tokens, which keys and values a page holds."""

import hashlib

import msgspec
import torch

from engine.kv.pool import PagePool
from engine.shape import ModelShape

_DOMAIN = b"rejoinder kv layout 3"
"""Its number rises when pages are laid out otherwise, or the same inputs give other values."""


def layout_fingerprint(
    pool: PagePool, shape: ModelShape, *, weights: str, weights_sha256: str
) -> bytes:
    """32 bytes. Two engines with the same one may read each other's pages.

    It covers the mode, sizes and inner order of a page, the model's numbers (RoPE and windows among
    them), the type and the digest of the weights, and, where keys are turned and centred before
    they are rounded, the matrix and the centres themselves.
    """
    running = hashlib.sha256()
    parts = [
        _DOMAIN,
        msgspec.json.encode(pool.layout),
        str(pool.layout.tiled).encode(),
        msgspec.json.encode(shape),
        weights.encode(),
        weights_sha256.encode(),
        *(_bytes(part) for layer in pool.layers for part in layer.turning),
    ]
    for part in parts:
        running.update(len(part).to_bytes(8, "little"))
        running.update(part)
    return running.digest()


def _bytes(part: torch.Tensor) -> bytes:
    return part.cpu().float().numpy().tobytes()
