"""A scope of many vectors: an index proposes, the stored vectors decide.

It begins flat. Past a size a graph is made in a thread while the flat index goes on answering; what
is added and removed meanwhile is noted, caught up with, and then the two change places. In the same
way a graph in which too much is dead is made anew.
"""

from concurrent.futures import Executor, Future

import numpy as np

from index.vectors import FlatVectors, GraphVectors, Match, Vector, VectorIndex

_MAX_DEAD_SHARE = 0.25
_MAX_INLINE_CHANGES = 64
"""As many are caught up with at once; more go to the thread first."""


class LargeScope:
    """Used from one thread; only the making of a graph is done in another (`builder`)."""

    def __init__(self, dimension: int, *, builder: Executor, graph_at: int) -> None:
        self._dimension = dimension
        self._builder = builder
        self._graph_at = graph_at
        self._index: VectorIndex = FlatVectors(dimension)
        self._vectors: dict[int, bytes] = {}
        self._making: Future[GraphVectors] | None = None
        self._changed: dict[int, bytes | None] = {}
        """Since the graph in the making was begun: added (its vector) or removed (None)."""

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def is_graph(self) -> bool:
        """Whether searches walk a graph by now."""
        return isinstance(self._index, GraphVectors)

    def add(self, vector_id: int, vector: bytes) -> None:
        self._vectors[vector_id] = vector
        self._index.add(vector_id, _read(vector))
        self._note(vector_id, vector)

    def remove(self, vector_id: int) -> None:
        if self._vectors.pop(vector_id, None) is not None:
            self._index.remove(vector_id)
            self._note(vector_id, None)

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        self._change_places()
        ids = [match.id for match in self._index.search(vector, limit=limit)]
        return nearest(ids, [self._vectors[each] for each in ids], vector, limit=limit)

    def check_integrity(self) -> None:
        self._index.check_integrity()

    def _note(self, vector_id: int, vector: bytes | None) -> None:
        if self._making is not None:
            self._changed[vector_id] = vector
            self._change_places()
        elif self._wants_graph():
            ids, vectors = list(self._vectors), list(self._vectors.values())
            self._making = self._builder.submit(
                GraphVectors, self._dimension, ids=ids, vectors=vectors
            )

    def _wants_graph(self) -> bool:
        if isinstance(self._index, GraphVectors):
            return self._index.dead_share > _MAX_DEAD_SHARE
        return len(self._vectors) > self._graph_at

    def _change_places(self) -> None:
        """Put the graph in place of the index, if it is made and has caught up."""
        if self._making is None or not self._making.done():
            return
        graph = self._making.result()
        changed, self._changed = self._changed, {}
        if len(changed) > _MAX_INLINE_CHANGES:
            self._making = self._builder.submit(_caught_up, graph, changed)
            return
        self._index = _caught_up(graph, changed)
        self._making = None


def nearest(ids: list[int], vectors: list[bytes], vector: Vector, *, limit: int) -> list[Match]:
    """The nearest of these by their exact similarity, best first."""
    if not ids:
        return []
    rows = _read(b"".join(vectors)).reshape(len(ids), -1)
    similarities = rows @ vector  # [num_vectors]
    best = np.argsort(-similarities, kind="stable")[:limit].tolist()
    return [Match(ids[row], float(similarities[row])) for row in best]


def _caught_up(graph: GraphVectors, changed: dict[int, bytes | None]) -> GraphVectors:
    for vector_id, vector in changed.items():
        if vector is None:
            graph.remove(vector_id)
        else:
            graph.add(vector_id, _read(vector))
    return graph


def _read(vector: bytes) -> Vector:
    return np.frombuffer(vector, dtype="<f4")
