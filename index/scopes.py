"""One small world a scope: vectors are only ever compared within it.

Most scopes hold a handful of entries, and there may be millions of them: such a scope is two plain
lists. The few that grow large get an index of their own.
"""

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol

from index.largescope import LargeScope, nearest
from index.vectors import Match, Vector

GROW_AT = 256
"""A scope with more entries than this is searched through an index."""

GRAPH_AT = 20_000
"""With more than this, through a graph."""


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
        return nearest(self.ids, self.vectors, vector, limit=limit)

    def check_integrity(self) -> None:
        assert len(self.ids) == len(self.vectors) == len(set(self.ids))


class Scopes:
    """All scopes of one embedder. Ids are unique over all of them; the caller keeps them."""

    def __init__(self, dimension: int, *, graph_at: int = GRAPH_AT) -> None:
        self._dimension = dimension
        self._graph_at = graph_at
        self._builder: Executor | None = None
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

    def close(self) -> None:
        """Let go of the thread that makes graphs. Idempotent."""
        if self._builder is not None:
            self._builder.shutdown(wait=True, cancel_futures=True)

    def _grown(self, small: SmallScope) -> LargeScope:
        if self._builder is None:
            self._builder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="graph")
        large = LargeScope(self._dimension, builder=self._builder, graph_at=self._graph_at)
        for vector_id, vector in zip(small.ids, small.vectors, strict=True):
            large.add(vector_id, vector)
        return large
