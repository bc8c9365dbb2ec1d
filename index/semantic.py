"""Entries found by meaning: what the proxy asks, and the null object for no semantic tier.

Light to import: numpy and faiss come with the first `SemanticIndex`, not with this module.
"""

import logging
from typing import TYPE_CHECKING, Protocol

import msgspec

from index.entry import Entry
from index.errors import EmbedderFault

if TYPE_CHECKING:
    from index.embedder import Embedder

logger = logging.getLogger(__name__)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the scope whose prompt is near; whether it may be served is for `judge`."""

    key: str
    prompt: str
    similarity: float
    """Cosine with the stored embedding, not an index's estimate."""


class Sought(msgspec.Struct, frozen=True, kw_only=True):
    """What a search came to."""

    embedding: bytes | None = None
    """Of the prompt: float32, little endian, unit length; to be stored with the new entry."""
    embedder: str = ""
    """Identity of what made it: by the time that the entry is stored, another may be in use."""
    candidates: tuple[Candidate, ...] = ()
    """Best first."""
    reason: str | None = None
    """Why nothing was sought: `off` | `empty` | `script` | `too_long` | `fault`."""


class SemanticStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes now."""

    entries: int
    scopes: int


class Semantic(Protocol):
    """Entries by scope and meaning. All but `search` and `close` returns at once."""

    identity: str
    """Of the embedder; empty when there is none. Goes into the entries."""

    async def search(self, scope: str, prompt: str, *, limit: int) -> Sought:
        """Embed the prompt and find the nearest entries of its scope. Never raises: a failing
        embedder is a `reason`. Freshness, tags and tenant are not known here."""
        ...

    async def similarity(self, one: str, other: str) -> float | None:
        """Cosine of two texts; None where the embedder cannot read one of them. Raises
        EmbedderFault."""
        ...

    def add(self, entry: Entry) -> None:
        """Hold an entry, in place of one with its key. One without an embedding of this embedder
        is not held."""
        ...

    def remove(self, key: str) -> None:
        """Let go of an entry; a no-op when it is not held."""
        ...

    def clear(self) -> None:
        """Let go of everything."""
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

    async def search(self, scope: str, prompt: str, *, limit: int) -> Sought:
        return Sought(reason="off")

    async def similarity(self, one: str, other: str) -> float | None:
        return None

    def add(self, entry: Entry) -> None:
        """Nothing is held."""

    def remove(self, key: str) -> None:
        """Nothing is held."""

    def clear(self) -> None:
        """Nothing is held."""

    def stats(self) -> SemanticStats:
        return SemanticStats(entries=0, scopes=0)

    async def close(self) -> None:
        """Nothing to let go of."""


class _Record(msgspec.Struct, frozen=True):
    vector_id: int
    key: str
    scope: str
    prompt: str


class SemanticIndex:
    """The vectors of this process, in step with a store that the proxy tells it of."""

    def __init__(self, embedder: "Embedder") -> None:
        from index.scopes import Scopes

        self.identity = embedder.identity
        self._embedder = embedder
        self._scopes = Scopes(embedder.dimension)
        self._embedding_bytes = 4 * embedder.dimension
        self._by_key: dict[str, _Record] = {}
        self._by_id: dict[int, _Record] = {}
        self._next_id = 0

    async def search(self, scope: str, prompt: str, *, limit: int) -> Sought:
        refusal = self._embedder.refuses(prompt)
        if refusal is not None:
            return Sought(reason=refusal)
        try:
            vector = (await self._embedder.embed([prompt]))[0]
        except EmbedderFault as fault:
            logger.warning("no embedding: %s", fault)
            return Sought(reason="fault")
        candidates = tuple(
            Candidate(key=record.key, prompt=record.prompt, similarity=match.similarity)
            for match in self._scopes.search(scope, vector, limit=limit)
            for record in (self._by_id[match.id],)
        )
        embedding = vector.astype("<f4").tobytes()
        return Sought(embedding=embedding, embedder=self.identity, candidates=candidates)

    async def similarity(self, one: str, other: str) -> float | None:
        if self._embedder.refuses(one) or self._embedder.refuses(other):
            return None
        first, second = await self._embedder.embed([one, other])
        return float(first @ second)

    def add(self, entry: Entry) -> None:
        held = self._by_key.get(entry.key)
        # The feed tells a process of its own entries too; an embedding follows from its text.
        if held is not None and (held.scope, held.prompt) == (entry.scope, entry.prompt):
            return
        self.remove(entry.key)
        if entry.embedder != self.identity or len(entry.embedding) != self._embedding_bytes:
            return
        if not entry.scope:
            return
        record = _Record(self._next_id, entry.key, entry.scope, entry.prompt)
        self._next_id += 1
        self._by_key[entry.key] = self._by_id[record.vector_id] = record
        self._scopes.add(entry.scope, record.vector_id, entry.embedding)

    def remove(self, key: str) -> None:
        record = self._by_key.pop(key, None)
        if record is not None:
            del self._by_id[record.vector_id]
            self._scopes.remove(record.scope, record.vector_id)

    def clear(self) -> None:
        for key in list(self._by_key):
            self.remove(key)

    def stats(self) -> SemanticStats:
        return SemanticStats(entries=len(self._by_key), scopes=len(self._scopes))

    async def close(self) -> None:
        self._scopes.close()
        await self._embedder.close()

    def check_integrity(self) -> None:
        """Assert what must always hold. For tests."""
        assert {record.key for record in self._by_id.values()} == set(self._by_key)
        assert len(self._by_id) == len(self._by_key)
        self._scopes.check_integrity()
