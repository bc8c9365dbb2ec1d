"""A linear classifier on embeddings: is the answer to this prompt volatile or personal?

A model belongs to one embedder: of another it is not used, since its numbers would mean nothing.
What runs the embedder may be another: it is held to the same vectors, but for rounding.
`python -m index.volatility.training` makes one from labelled lines.
"""

import logging
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

FORMAT = 1

logger = logging.getLogger(__name__)

_SHIPPED = Path(__file__).with_name("model.json")


class VolatilityModel(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of a logistic regression, and what is known of where they come from."""

    format: int = FORMAT
    embedder: str
    """Identity of the embedder whose vectors it was trained on."""
    trained_on: str
    """Where the labelled lines come from, in words."""
    threshold: float
    """A prompt is volatile when its score is above."""
    bias: float
    weights: tuple[float, ...]
    """[dimension]"""


class Classifier:
    """A model, ready for use."""

    def __init__(self, model: VolatilityModel) -> None:
        self._weights: NDArray[np.float32] = np.array(model.weights, dtype=np.float32)
        self._least = model.threshold - model.bias

    def __call__(self, vector: NDArray[np.float32]) -> bool:
        """Whether the prompt of this unit vector, float32 [dimension], is volatile or personal."""
        return float(vector @ self._weights) > self._least


class NoClassifier:
    """For an embedder that no model was trained for."""

    def __call__(self, vector: NDArray[np.float32]) -> bool:
        return False


def read_classifier(identity: str, path: Path = _SHIPPED) -> Classifier | NoClassifier:
    """The classifier for an embedder's vectors; none, and a line in the log, where the model at
    `path` is for another embedder or of another format."""
    model = msgspec.json.decode(path.read_bytes(), type=VolatilityModel)
    if model.format == FORMAT and _space(model.embedder) == _space(identity):
        return Classifier(model)
    logger.warning(
        "no classifier for embedder %s: volatile prompts are known by rules and examples alone",
        identity,
    )
    return NoClassifier()


def _space(identity: str) -> str:
    """An embedder's identity but for its runtime, the last part but one."""
    model, _, rest = identity.rpartition("/")
    return f"{model.rpartition('/')[0]}/{rest}"
