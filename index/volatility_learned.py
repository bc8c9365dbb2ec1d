"""What rules over the text cannot see: volatile and personal prompts known by their embedding."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from index.volatility_examples import EXAMPLE, LEARNED, LEAST_LIKENESS, Examples
from index.volatility_model import read_classifier

if TYPE_CHECKING:
    from index.embedder import Embedder

Vector = NDArray[np.float32]


class LearnedVolatility:
    """The nearest of the policy's examples decides; where none is near, the classifier."""

    def __init__(self, embedder: "Embedder") -> None:
        self._embedder = embedder
        self._classifier = read_classifier(embedder.identity)
        self._known: dict[tuple[str, ...], Vector] = {}

    async def judge(self, embedding: bytes, examples: Examples) -> str | None:
        vector = np.frombuffer(embedding, dtype="<f4")
        volatile = _likeness(vector, await self._vectors(examples.volatile))
        stable = _likeness(vector, await self._vectors(examples.stable))
        if max(volatile, stable) >= LEAST_LIKENESS:
            return EXAMPLE if volatile > stable else None
        return LEARNED if examples.classifier and self._classifier(vector) else None

    async def _vectors(self, texts: Sequence[str]) -> Vector:
        """[num_texts, dimension]; made once. Texts that the embedder cannot read are left out."""
        known = self._known.get(tuple(texts))
        if known is None:
            readable = [text for text in texts if self._embedder.refuses(text) is None]
            known = np.empty((0, self._embedder.dimension), dtype=np.float32)
            if readable:
                known = await self._embedder.embed(readable)
            self._known[tuple(texts)] = known
        return known


def _likeness(vector: Vector, examples: Vector) -> float:
    """Cosine with the nearest example; -1 without any."""
    return float((examples @ vector).max()) if len(examples) else -1.0
