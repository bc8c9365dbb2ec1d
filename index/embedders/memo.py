"""Vectors of the texts that were embedded last: a question that is asked again costs nothing."""

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from index.nearest.vectors import Vector

MAX_TEXTS = 4096
"""With 384 dimensions, some 8 MB."""


class Memo:
    """Of one embedder. Holds digests of texts, not the texts: those can be erased elsewhere."""

    def __init__(self, max_texts: int = MAX_TEXTS) -> None:
        self._max_texts = max_texts
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()

    def get(self, text: str) -> "Vector | None":
        """None when it is not among the last."""
        digest = _digest(text)
        vector = self._vectors.get(digest)
        if vector is not None:
            self._vectors.move_to_end(digest)
        return vector

    def put(self, text: str, vector: "Vector") -> None:
        """In the place of what was not asked for the longest."""
        self._vectors[_digest(text)] = vector
        if len(self._vectors) > self._max_texts:
            self._vectors.popitem(last=False)

    def clear(self) -> None:
        """Let go of all."""
        self._vectors.clear()


def _digest(text: str) -> bytes:
    # Lone surrogates come out of JSON.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
