"""The vectors of all entries in this process, told of every change of the store."""

import asyncio
import sys

import msgspec

from index.entry import Entry
from index.nearest.scopes import Scopes
from index.nearest.vectorplace import Candidate, SemanticStats
from index.nearest.vectors import Vector


# Of a million of them the collector of cycles need not know.
class _Record(msgspec.Struct, frozen=True, gc=False):
    vector_id: int
    key: str
    scope: str
    prompt: str


class LocalVectors:
    """See `index.nearest.vectorplace.VectorPlace`."""

    follows = True

    def __init__(self, *, identity: str, dimension: int) -> None:
        self._identity = identity
        self._scopes = Scopes(dimension)
        self._embedding_bytes = 4 * dimension
        self._by_key: dict[str, _Record] = {}
        self._by_id: dict[int, _Record] = {}
        self._next_id = 0

    def add(self, entry: Entry) -> None:
        held = self._by_key.get(entry.key)
        # The feed tells a process of its own entries too; an embedding follows from its text.
        if held is not None and (held.scope, held.prompt) == (entry.scope, entry.prompt):
            return
        self.remove(entry.key)
        if entry.embedder != self._identity or len(entry.embedding) != self._embedding_bytes:
            return
        if not entry.scope:
            return
        scope = sys.intern(entry.scope)  # one text for all of its entries
        record = _Record(self._next_id, entry.key, scope, entry.prompt)
        self._next_id += 1
        self._by_key[entry.key] = self._by_id[record.vector_id] = record
        self._scopes.add(entry.scope, record.vector_id, entry.embedding)

    def remove(self, key: str) -> None:
        record = self._by_key.pop(key, None)
        if record is not None:
            del self._by_id[record.vector_id]
            self._scopes.remove(record.scope, record.vector_id)

    def is_behind(self, scope: str) -> bool:
        return self._scopes.is_behind(scope)

    def clear(self) -> None:
        self._scopes.clear()
        self._by_key.clear()
        self._by_id.clear()

    async def search(self, scope: str, vector: Vector, *, limit: int) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(key=record.key, prompt=record.prompt, similarity=match.similarity)
            for match in self._scopes.search(scope, vector, limit=limit)
            for record in (self._by_id[match.id],)
        )

    def stats(self) -> SemanticStats:
        return SemanticStats(entries=len(self._by_key), scopes=len(self._scopes))

    async def close(self) -> None:
        await asyncio.to_thread(self._scopes.close)

    def check_integrity(self) -> None:
        """Assert what must always hold. For tests."""
        assert {record.key for record in self._by_id.values()} == set(self._by_key)
        assert len(self._by_id) == len(self._by_key)
        self._scopes.check_integrity()
