"""Rotary position embedding (Su et al., RoFormer, 2021), half-split as in transformers."""

import torch

from engine.models.rope_scaling import RopeShape


class Rope:
    """Angles by position. Frequencies are computed in float64: at position 8,000 float32 angles
    are off by 5e-4."""

    def __init__(
        self,
        shape: RopeShape,
        *,
        head_dim: int,
        max_positions: int,
        device: torch.device | None = None,
    ) -> None:
        frequencies = torch.tensor(shape.frequencies(head_dim), dtype=torch.float64)
        positions = torch.arange(max_positions, dtype=torch.float64)
        angles = torch.outer(positions, frequencies)  # [max_positions, head_dim / 2]
        cos, sin = angles.cos() * shape.magnitude, angles.sin() * shape.magnitude
        self._cos = torch.cat((cos, cos), dim=1).float().to(device)
        self._sin = torch.cat((-sin, sin), dim=1).float().to(device)

    def at(self, positions: torch.Tensor) -> "Rotation":
        """`positions` int64 [num_tokens]."""
        return Rotation(self._cos[positions, None], self._sin[positions, None])


class Rotation:
    """The rotation of each token of a step, the same for all heads and for all layers of a kind."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self.cos = cos  # float32 [num_tokens, 1, head_dim]
        self.sin = sin  # the first half negated: x_1 cos - x_2 sin, x_2 cos + x_1 sin

    def turn(self, heads: torch.Tensor) -> torch.Tensor:
        """`heads` float32 [num_tokens, num_heads, head_dim] → the same shape, new."""
        half = heads.shape[-1] // 2
        return torch.addcmul(heads * self.cos, heads.roll(half, dims=-1), self.sin)
