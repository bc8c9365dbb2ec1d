"""Embeddings of whole sets, kept on disk: to make them takes minutes, to read them a moment."""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from index.embedders.embedder import Embedder

Vector = NDArray[np.float32]

_BATCH = 256
_HASH_BYTES = 16


class Vectors:
    """Text to unit vector. Texts that the embedder refuses have none, as in serving."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        name = hashlib.sha256(embedder.identity.encode()).hexdigest()[:16]
        self._file = folder / f"vectors-{name}.npz"
        self._held: dict[bytes, Vector] = {}
        if self._file.is_file():
            with np.load(self._file) as kept:
                hashes = [bytes(row) for row in kept["hashes"]]
                self._held = dict(zip(hashes, kept["vectors"], strict=True))

    async def of(self, texts: Iterable[str]) -> Mapping[str, Vector]:
        """The vectors of `texts`; those not yet known are made and kept."""
        readable = sorted({text for text in texts if self._embedder.refuses(text) is None})
        missing = [text for text in readable if _hash(text) not in self._held]
        for first in range(0, len(missing), _BATCH):
            batch = missing[first : first + _BATCH]
            made = await self._embedder.embed(batch)
            self._held.update(zip(map(_hash, batch), made, strict=True))
            print(f"\rembedding {first + len(batch)}/{len(missing)}", end="", file=sys.stderr)
        if missing:
            print(file=sys.stderr)
            self._keep()
        return {text: self._held[_hash(text)] for text in readable}

    def _keep(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        rows = [np.frombuffer(key, dtype=np.uint8) for key in self._held]
        np.savez(self._file, hashes=np.stack(rows), vectors=np.stack(list(self._held.values())))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:_HASH_BYTES]
