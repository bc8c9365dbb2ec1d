"""What all layers of a step share."""

import msgspec
import torch

from engine.attention.spans import AttentionSpans
from engine.models.rope import Rotation


class LayerStep(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A step as layers of one kind of RoPE see it."""

    rotation: Rotation
    slots: torch.Tensor
    """int64 [num_tokens]: where keys and values of each token go, as in `LayerPages.write`."""
    spans: AttentionSpans
