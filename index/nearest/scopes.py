"""One small world a scope: vectors are only ever compared within it.

Most scopes hold a handful of entries, and there may be millions of them: such a scope is two plain
lists. The few that grow large get an index of their own. No scope holds vectors as they are, which
would take four times the memory: those are with the entries in the store.
"""

import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol

import numpy as np

from index.nearest.codes import decoded, encoded
from index.nearest.largescope import LargeScope
from index.nearest.vectors import Match, Vector

GROW_AT = 256
"""A scope with more entries than this is searched through an index."""

GRAPH_AT = 5_000
"""With more than this, through a graph."""


class _Scope(Protocol):
    def add(self, vector_id: int, vector: Vector) -> None: ...
    def remove(self, vector_id: int) -> None: ...
    def search(self, vector: Vector, *, limit: int) -> list[Match]: ...
    def check_integrity(self) -> None: ...
    def __len__(self) -> int: ...


class SmallScope:
    """A few vectors, compared one and all."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.codes: list[bytes] = []

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, vector_id: int, vector: Vector) -> None:
        self.ids.append(vector_id)
        self.codes.append(encoded(vector))

    def remove(self, vector_id: int) -> None:
        if vector_id in self.ids:
            position = self.ids.index(vector_id)
            del self.ids[position], self.codes[position]

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        similarities = decoded(self.codes) @ vector  # [num_codes]
        best = np.argsort(-similarities, kind="stable")[:limit].tolist()
        return [Match(self.ids[row], float(similarities[row])) for row in best]

    def check_integrity(self) -> None:
        assert len(self.ids) == len(self.codes) == len(set(self.ids))


class Scopes:
    """All scopes of one embedder. Ids are unique over all of them; the caller keeps them."""

    def __init__(self, dimension: int, *, graph_at: int = GRAPH_AT) -> None:
        self._dimension = dimension
        self._graph_at = graph_at
        self._builder: Executor | None = None
        self._stopping = threading.Event()
        self._scopes: dict[str, _Scope] = {}

    def __len__(self) -> int:
        return len(self._scopes)

    def add(self, scope: str, vector_id: int, vector: bytes) -> None:
        """Hold a unit vector (float32, little endian) under an id that was never held before."""
        assert len(vector) == 4 * self._dimension
        held = self._scopes.get(scope)
        if held is None:
            held = self._scopes[scope] = SmallScope()
        elif isinstance(held, SmallScope) and len(held) >= GROW_AT:
            held = self._scopes[scope] = self._grown(held)
        held.add(vector_id, np.frombuffer(vector, dtype="<f4"))

    def remove(self, scope: str, vector_id: int) -> None:
        """Let go of an id; a no-op when it is not held. An empty scope costs nothing."""
        held = self._scopes.get(scope)
        if held is not None:
            held.remove(vector_id)
            if len(held) == 0:
                del self._scopes[scope]

    def is_behind(self, scope: str) -> bool:
        """Whether a scope is slow to search until what is in the making is made: who adds many to
        it should wait."""
        held = self._scopes.get(scope)
        return isinstance(held, LargeScope) and held.is_behind

    def clear(self) -> None:
        """Let go of all ids. What is in the making is of use to nobody then."""
        self._scopes.clear()

    def search(self, scope: str, vector: Vector, *, limit: int) -> list[Match]:
        """The nearest in the scope, best first, by their estimated cosine."""
        held = self._scopes.get(scope)
        return [] if held is None else held.search(vector, limit=limit)

    def check_integrity(self) -> None:
        """Assert what must always hold. For tests."""
        for held in self._scopes.values():
            assert len(held) > 0
            held.check_integrity()

    def close(self) -> None:
        """End the thread that makes graphs; blocks until its step is over. Idempotent."""
        self._stopping.set()
        if self._builder is not None:
            self._builder.shutdown(wait=True, cancel_futures=True)

    def _grown(self, small: SmallScope) -> LargeScope:
        if self._builder is None:
            self._builder = ThreadPoolExecutor(max_workers=1, thread_name_prefix="graph")
        large = LargeScope(
            self._dimension,
            builder=self._builder,
            stopping=self._stopping,
            graph_at=self._graph_at,
        )
        for vector_id, vector in zip(small.ids, decoded(small.codes), strict=True):
            large.add(vector_id, vector)
        return large
