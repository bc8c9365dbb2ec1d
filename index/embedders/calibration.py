"""What the similarities of one embedder are worth in those of another.

The thresholds of the profiles were chosen with all-MiniLM-L6-v2. Cosines of other models crowd
elsewhere: those of multilingual-e5-small lie above .7 whatever the texts say.
"""

from itertools import pairwise

import msgspec


class Calibration(msgspec.Struct, frozen=True):
    """Pairs of a cosine and the cosine of all-MiniLM-L6-v2 that says as much, both rising, the
    first at the bottom and the last at (1, 1); straight lines between."""

    points: tuple[tuple[float, float], ...]

    def __call__(self, cosine: float) -> float:
        """The cosine of all-MiniLM-L6-v2 that says as much."""
        for (low, worth), (high, more) in pairwise(self.points):
            if cosine <= high:
                return worth + (cosine - low) * (more - worth) / (high - low)
        return cosine

    def cosine_of(self, worth: float) -> float:
        """The other way: this embedder's cosine that is worth so much."""
        for (low, least), (high, most) in pairwise(self.points):
            if worth <= most:
                return low + (worth - least) * (high - low) / (most - least)
        return worth


AS_IT_IS = Calibration(((-1.0, -1.0), (1.0, 1.0)))

_E5_SMALL = Calibration(
    (
        (-1.0, -1.0),
        (0.855, 0.40),
        (0.897, 0.60),
        (0.921, 0.70),
        (0.946, 0.80),
        (0.956, 0.85),
        (0.963, 0.88),
        (0.971, 0.90),
        (0.976, 0.92),
        (0.985, 0.95),
        (0.993, 0.97),
        (1.0, 1.0),
    )
)
"""Quantiles of 450 pairs that ask the same and 450 that do not (English, of the part that is read
of the labelled sets), embedded with both; the two kinds differ by .007 at most from .70 on."""

_KNOWN = {
    "all-minilm-l6-v2": AS_IT_IS,
    "multilingual-e5-small": _E5_SMALL,
}


def calibration_of(model: str) -> Calibration | None:
    """That of a model by the name which a config gives, however its words are joined; None for one
    that was never measured."""
    name = model.lower().replace("_", "-")
    return next((one for known, one in _KNOWN.items() if known in name), None)
