"""What rules over the text cannot see: volatile and personal prompts known by their embedding."""

import asyncio
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from index.volatility.examples import EXAMPLE, LEARNED, LEAST_LIKENESS, Examples
from index.volatility.model import Classifier, read_classifier

if TYPE_CHECKING:
    from index.embedders.embedder import Embedder

Vector = NDArray[np.float32]


class LearnedVolatility:
    """The nearest of the policy's examples decides; where none is near, the classifier."""

    def __init__(self, embedder: "Embedder") -> None:
        self._embedder = embedder
        self._classifier = read_classifier(embedder.identity)
        self._known: dict[tuple[str, ...], asyncio.Task[Vector]] = {}

    @property
    def has_classifier(self) -> bool:
        """Whether one was made for this embedder."""
        return isinstance(self._classifier, Classifier)

    async def judge(self, embedding: bytes, examples: Examples) -> str | None:
        vector = np.frombuffer(embedding, dtype="<f4")
        volatile = _likeness(vector, await self._vectors(examples.volatile))
        stable = _likeness(vector, await self._vectors(examples.stable))
        if max(volatile, stable) >= LEAST_LIKENESS:
            return EXAMPLE if volatile > stable else None
        return LEARNED if examples.classifier and self._classifier(vector) else None

    async def _vectors(self, texts: tuple[str, ...]) -> Vector:
        """[num_texts, dimension]; made once, for all who ask meanwhile and also when they leave:
        who has a deadline would else begin anew each time. What failed is tried again."""
        task = self._known.get(texts)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._known[texts] = asyncio.create_task(self._embedded(texts))
        return await asyncio.shield(task)

    async def _embedded(self, texts: tuple[str, ...]) -> Vector:
        """Texts that the embedder cannot read are left out."""
        readable = [text for text in texts if self._embedder.refuses(text) is None]
        if not readable:
            return np.empty((0, self._embedder.dimension), dtype=np.float32)
        return await self._embedder.embed(readable)


def _likeness(vector: Vector, examples: Vector) -> float:
    """Cosine with the nearest example; -1 without any."""
    return float((examples @ vector).max()) if len(examples) else -1.0
