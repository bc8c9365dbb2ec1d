"""Entries found by meaning: what the proxy asks, and the null object for no semantic tier.

Light to import: numpy and faiss come with the first `SemanticIndex`, not with this module.
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from index.embedders.memo import Memo
from index.entry import Entry
from index.errors import EmbedderFault, StoreFault
from index.nearest.vectorplace import Candidate, SemanticStats, VectorPlace

if TYPE_CHECKING:
    from index.embedders.embedder import Embedder
    from index.nearest.vectors import Vector

logger = logging.getLogger(__name__)


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What a search came to."""

    embedding: bytes | None = None
    """Of the prompt: float32, little endian, unit length; to be stored with the new entry."""
    embedder: str = ""
    """Identity of what made it: by the time that the entry is stored, another may be in use."""
    candidates: tuple[Candidate, ...] = ()
    """Best first."""
    reason: str | None = None
    """Why nothing was sought: `off` | `empty` | `script` | `too_long` | `unreadable` | `fault`."""


class Semantic(Protocol):
    """Entries by scope and meaning. All but `search` and `close` returns at once."""

    identity: str
    """Of the embedder; empty when there is none. Goes into the entries."""

    @property
    def away(self) -> str:
        """Why the embedder, a server, answers nobody for now; empty when it answers."""
        ...

    async def search(self, scope: str, prompt: str, *, limit: int) -> Sought:
        """Embed the prompt and find the nearest entries of its scope. Never raises: a failing
        embedder is a `reason`. Freshness, tags and tenant are not known here."""
        ...

    def confirm(self, embedding: bytes, entry: Entry) -> float | None:
        """Cosine of a `Sought.embedding` with that of an entry as it was stored; None where the
        entry's is another embedder's, or none."""
        ...

    async def similarity(self, one: str, other: str) -> float | None:
        """Cosine of two texts; None where the embedder cannot read one of them. Raises
        EmbedderFault."""
        ...

    async def similarities(
        self, ones: Sequence[str], others: Sequence[str]
    ) -> list[list[float | None]]:
        """`similarity` of each of `ones` with each of `others`. Raises EmbedderFault."""
        ...

    def add(self, entry: Entry) -> None:
        """Hold an entry, in place of one with its key. One without an embedding of this embedder
        is not held."""
        ...

    def remove(self, key: str) -> None:
        """Let go of an entry; a no-op when it is not held."""
        ...

    def is_behind(self, scope: str) -> bool:
        """See `VectorPlace.is_behind`."""
        ...

    def clear(self) -> None:
        """Let go of everything."""
        ...

    def forget(self) -> None:
        """Let go of what is remembered of questions, which then are embedded anew."""
        ...

    def stats(self) -> SemanticStats:
        """Sizes now."""
        ...

    async def close(self) -> None:
        """Let go of the embedder. Idempotent."""
        ...


class NoSemantic:
    """No semantic tier."""

    identity = ""
    away = ""

    async def search(self, scope: str, prompt: str, *, limit: int) -> Sought:
        return Sought(reason="off")

    def confirm(self, embedding: bytes, entry: Entry) -> float | None:
        return None

    async def similarity(self, one: str, other: str) -> float | None:
        return None

    async def similarities(
        self, ones: Sequence[str], others: Sequence[str]
    ) -> list[list[float | None]]:
        return [[None] * len(others) for _ in ones]

    def add(self, entry: Entry) -> None:
        """Nothing is held."""

    def remove(self, key: str) -> None:
        """Nothing is held."""

    def is_behind(self, scope: str) -> bool:
        return False

    def clear(self) -> None:
        """Nothing is held."""

    def forget(self) -> None:
        """Nothing is remembered."""

    def stats(self) -> SemanticStats:
        return SemanticStats(entries=0, scopes=0)

    async def close(self) -> None:
        """Nothing to let go of."""


class SemanticIndex:
    """An embedder, and the place of its vectors."""

    def __init__(
        self,
        embedder: "Embedder",
        vectors: VectorPlace | None = None,
        *,
        memo: Memo | None = None,
    ) -> None:
        """`vectors`: of this embedder; by default those of this process. `memo`: one that several
        indices of this embedder share; by default one of its own."""
        if vectors is None:
            from index.nearest.localvectors import LocalVectors

            vectors = LocalVectors(identity=embedder.identity, dimension=embedder.dimension)
        self.identity = embedder.identity
        self.vectors = vectors
        self._embedder = embedder
        self._memo = Memo() if memo is None else memo

    @property
    def away(self) -> str:
        return self._embedder.away

    async def search(self, scope: str, prompt: str, *, limit: int) -> Sought:
        refusal = self._embedder.refuses(prompt)
        if refusal is not None:
            return Sought(reason=refusal)
        try:
            vector = await self._vector(prompt)
        except EmbedderFault as fault:
            logger.warning("no embedding: %s", fault)
            return Sought(reason="fault")
        embedding = vector.astype("<f4").tobytes()
        sought = Sought(embedding=embedding, embedder=self.identity)
        try:
            candidates = await self.vectors.search(scope, vector, limit=limit)
        except StoreFault as fault:
            logger.warning("no search by meaning: %s", fault)
            return sought
        return msgspec.structs.replace(sought, candidates=candidates)

    def confirm(self, embedding: bytes, entry: Entry) -> float | None:
        if entry.embedder != self.identity or len(entry.embedding) != len(embedding):
            return None
        # Loaded with the embedder; this module has to do without.
        import numpy as np

        one, other = (np.frombuffer(each, dtype="<f4") for each in (embedding, entry.embedding))
        return float(one @ other)

    async def similarity(self, one: str, other: str) -> float | None:
        return (await self.similarities([one], [other]))[0][0]

    async def similarities(
        self, ones: Sequence[str], others: Sequence[str]
    ) -> list[list[float | None]]:
        texts = dict.fromkeys((*ones, *others))
        readable = [text for text in texts if self._embedder.refuses(text) is None]
        made = await self._embedder.embed(readable) if readable else ()
        known = dict(zip(readable, made, strict=True))
        return [
            [float(known[a] @ known[b]) if a in known and b in known else None for b in others]
            for a in ones
        ]

    def add(self, entry: Entry) -> None:
        self.vectors.add(entry)

    def remove(self, key: str) -> None:
        self.vectors.remove(key)

    def is_behind(self, scope: str) -> bool:
        return self.vectors.is_behind(scope)

    def clear(self) -> None:
        self.vectors.clear()

    def forget(self) -> None:
        self._memo.clear()

    def stats(self) -> SemanticStats:
        return self.vectors.stats()

    async def close(self) -> None:
        await self.vectors.close()
        await self._embedder.close()

    async def _vector(self, prompt: str) -> "Vector":
        vector = self._memo.get(prompt)
        if vector is None:
            # A copy: a row would keep its whole batch.
            vector = (await self._embedder.embed([prompt]))[0].copy()
            self._memo.put(prompt, vector)
        return vector
