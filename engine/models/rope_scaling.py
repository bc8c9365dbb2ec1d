"""How RoPE's frequencies are stretched for contexts longer than a model was first trained on."""

import math
from typing import assert_never

import msgspec


class Linear(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All positions closer together (Chen et al., Position Interpolation, 2023)."""

    factor: float


class Llama3(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Llama 3.1's: waves longer than the original context are stretched, short ones kept."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int


class Yarn(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Peng et al., YaRN, 2023. `magnitude` multiplies cosines and sines; by default the paper's
    0.1 ln(factor) + 1."""

    factor: float
    original_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    magnitude: float | None = None
    truncate: bool = True
    """Round the ramp's ends outwards to whole channels."""


class Divisors(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Worked out by whoever wrote the file: one divisor for each frequency."""

    values: tuple[float, ...]


RopeScaling = Linear | Llama3 | Yarn | Divisors


class RopeShape(msgspec.Struct, frozen=True, kw_only=True):
    """A rotary embedding over whole heads."""

    base: float
    scaling: RopeScaling | None = None

    def frequencies(self, head_dim: int) -> list[float]:
        """Radians a position, for each of the head_dim / 2 pairs of channels."""
        plain = [self.base ** (-2 * pair / head_dim) for pair in range(head_dim // 2)]
        match self.scaling:
            case None:
                return plain
            case Linear(factor=factor):
                return [frequency / factor for frequency in plain]
            case Llama3() as llama3:
                return [_by_wavelength(frequency, llama3) for frequency in plain]
            case Yarn() as yarn:
                return _ramped(plain, yarn, base=self.base, head_dim=head_dim)
            case Divisors(values=values):
                return [frequency / by for frequency, by in zip(plain, values, strict=True)]
            case _:
                assert_never(self.scaling)

    @property
    def magnitude(self) -> float:
        """Of the rotated vectors; 1 but for YaRN."""
        if not isinstance(self.scaling, Yarn):
            return 1.0
        if self.scaling.magnitude is not None:
            return self.scaling.magnitude
        return yarn_magnitude(self.scaling.factor)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """YaRN's attention temperature, as a factor of queries and keys."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _by_wavelength(frequency: float, scaling: Llama3) -> float:
    turns = scaling.original_positions * frequency / (2 * math.pi)
    if turns < scaling.low_freq_factor:
        return frequency / scaling.factor
    if turns > scaling.high_freq_factor:
        return frequency
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = (turns - scaling.low_freq_factor) / span
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def _ramped(plain: list[float], scaling: Yarn, *, base: float, head_dim: int) -> list[float]:
    def pair_of(turns: float) -> float:
        """Which pair turns so often over the original context."""
        positions = scaling.original_positions
        return head_dim * math.log(positions / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_of(scaling.beta_fast), pair_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001

    def stretched(pair: int, frequency: float) -> float:
        share = min(max((pair - low) / (high - low), 0.0), 1.0)
        return share * frequency / scaling.factor + (1 - share) * frequency

    return [stretched(pair, frequency) for pair, frequency in enumerate(plain)]
