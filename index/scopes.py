"""One small world a scope: vectors are only ever compared within it.

Most scopes hold a handful of entries, and there may be millions of them: such a scope is two plain
lists. The few that grow large get an index of their own.
"""

from typing import Protocol

import numpy as np

from index.vectors import FlatVectors, Match, Vector, VectorIndex

GROW_AT = 256
"""A scope with more entries than this is searched through an index."""


class _Scope(Protocol):
    def add(self, vector_id: int, vector: bytes) -> None: ...
    def remove(self, vector_id: int) -> None: ...
    def search(self, vector: Vector, *, limit: int) -> list[Match]: ...
    def check_integrity(self) -> None: ...
    def __len__(self) -> int: ...


class SmallScope:
    """A few vectors, compared one and all. The bytes are those of the entry, not a copy."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.vectors: list[bytes] = []

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, vector_id: int, vector: bytes) -> None:
        self.ids.append(vector_id)
        self.vectors.append(vector)

    def remove(self, vector_id: int) -> None:
        if vector_id in self.ids:
            position = self.ids.index(vector_id)
            del self.ids[position], self.vectors[position]

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        return _confirmed(self.ids, self.vectors, vector, limit=limit)

    def check_integrity(self) -> None:
        assert len(self.ids) == len(self.vectors) == len(set(self.ids))


class LargeScope:
    """Many vectors: an index proposes, the stored vectors decide."""

    def __init__(self, index: VectorIndex) -> None:
        self._index = index
        self._vectors: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._vectors)

    def add(self, vector_id: int, vector: bytes) -> None:
        self._vectors[vector_id] = vector
        self._index.add(vector_id, np.frombuffer(vector, dtype="<f4"))

    def remove(self, vector_id: int) -> None:
        if self._vectors.pop(vector_id, None) is not None:
            self._index.remove(vector_id)

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        ids = [match.id for match in self._index.search(vector, limit=limit)]
        return _confirmed(ids, [self._vectors[each] for each in ids], vector, limit=limit)

    def check_integrity(self) -> None:
        self._index.check_integrity()


class Scopes:
    """All scopes of one embedder. Ids are unique over all of them; the caller keeps them."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self._scopes: dict[str, _Scope] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def add(self, scope: str, vector_id: int, vector: bytes) -> None:
        """Hold a unit vector (float32, little endian) under an id that is not held yet."""
        assert len(vector) == 4 * self._dimension
        held = self._scopes.get(scope)
        if held is None:
            held = self._scopes[scope] = SmallScope()
        elif isinstance(held, SmallScope) and len(held) >= GROW_AT:
            held = self._scopes[scope] = self._grown(held)
        held.add(vector_id, vector)

    def remove(self, scope: str, vector_id: int) -> None:
        """Let go of an id; a no-op when it is not held. An empty scope costs nothing."""
        held = self._scopes.get(scope)
        if held is not None:
            held.remove(vector_id)
            if len(held) == 0:
                del self._scopes[scope]

    def search(self, scope: str, vector: Vector, *, limit: int) -> list[Match]:
        """The nearest in the scope, best first, by exact cosine with the stored vectors."""
        held = self._scopes.get(scope)
        return [] if held is None else held.search(vector, limit=limit)

    def check_integrity(self) -> None:
        """Assert what must always hold. For tests."""
        for held in self._scopes.values():
            assert len(held) > 0
            held.check_integrity()

    def _grown(self, small: SmallScope) -> LargeScope:
        large = LargeScope(FlatVectors(self._dimension))
        for vector_id, vector in zip(small.ids, small.vectors, strict=True):
            large.add(vector_id, vector)
        return large


def _confirmed(ids: list[int], vectors: list[bytes], vector: Vector, *, limit: int) -> list[Match]:
    if not ids:
        return []
    rows = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(ids), -1)
    similarities = rows @ vector  # [num_vectors]
    best = np.argsort(-similarities, kind="stable")[:limit].tolist()
    return [Match(ids[row], float(similarities[row])) for row in best]
