"""Nearest vectors by inner product, under ids of our own."""

from collections.abc import Sequence
from typing import Protocol

import faiss
import msgspec
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

_LEAST_TOMBSTONES = 64
_TOMBSTONE_SHARE = 0.25
"""Rebuilt when more of what is held is dead than this."""


_LINKS = 16
_BUILD_BREADTH = 80
_SEARCH_BREADTH = 96
_OVERFETCH = 4
"""Of the graph (M, efConstruction, efSearch in the paper); asked for anew when too much is dead."""


_MAX_SAMPLE = 20_000
_STEP = 10_000
"""Of the making of a graph: vectors that tell the range of each dimension, and added at once."""


class Match(msgspec.Struct, frozen=True):
    """A vector found. `similarity` is the inner product: the cosine of unit vectors."""

    id: int
    similarity: float


class VectorIndex(Protocol):
    """Ids are the caller's (int64), never positions. One thread at a time."""

    def add(self, vector_id: int, vector: Vector) -> None:
        """Hold a unit vector [dimension]; the id must not be held yet."""
        ...

    def remove(self, vector_id: int) -> None:
        """Let go of an id; a no-op when it is not held."""
        ...

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        """The nearest, best first, at most `limit`, fewer when fewer are held. Distances may be
        approximate: the caller confirms them."""
        ...

    def check_integrity(self) -> None:
        """Assert what must always hold. For tests."""
        ...


class FlatVectors:
    """Every vector is compared, in half precision. Fast enough up to some 50,000.

    Removing from the middle of a flat index moves everything behind it, so removed ids are only
    remembered, passed over in searches, and swept out together.
    """

    def __init__(self, dimension: int) -> None:
        # One query is over before a second thread has begun (0.4 against 16 ms of CPU).
        faiss.omp_set_num_threads(1)
        self._dimension = dimension
        self._index = self._empty()
        self._ids: set[int] = set()
        self._dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, vector_id: int, vector: Vector) -> None:
        assert vector_id not in self._ids
        if vector_id in self._dead:
            self._sweep()
        ids = np.array([vector_id], dtype=np.int64)
        self._index.add_with_ids(vector.reshape(1, -1), ids)  # [1, dimension]
        self._ids.add(vector_id)

    def remove(self, vector_id: int) -> None:
        if vector_id not in self._ids:
            return
        self._ids.discard(vector_id)
        self._dead.add(vector_id)
        if len(self._dead) >= max(_LEAST_TOMBSTONES, _TOMBSTONE_SHARE * self._index.ntotal):
            self._sweep()

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        found = self._nearest(vector, limit + min(len(self._dead), limit))
        if len(found) < min(limit, len(self._ids)):
            # More of the nearest are dead than was allowed for.
            found = self._nearest(vector, limit + len(self._dead))
        return found[:limit]

    def check_integrity(self) -> None:
        assert self._ids.isdisjoint(self._dead)
        held = faiss.vector_to_array(self._index.id_map).tolist()
        assert len(held) == len(set(held)) == self._index.ntotal
        assert set(held) == self._ids | self._dead

    def _nearest(self, vector: Vector, num_wanted: int) -> list[Match]:
        num_wanted = min(num_wanted, self._index.ntotal)
        if num_wanted == 0:
            return []
        similarities, ids = self._index.search(vector.reshape(1, -1), num_wanted)  # [1, k] each
        return [
            Match(vector_id, similarity)
            for vector_id, similarity in zip(ids[0].tolist(), similarities[0].tolist(), strict=True)
            if vector_id in self._ids
        ]

    def _empty(self) -> faiss.IndexIDMap2:
        # Half precision: the bytes read are what a search costs.
        index = faiss.IndexScalarQuantizer(
            self._dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        return faiss.IndexIDMap2(index)

    def _sweep(self) -> None:
        ids = faiss.vector_to_array(self._index.id_map)
        rows = self._index.reconstruct_batch(ids)  # [num_held, dimension]
        alive = np.array([vector_id in self._ids for vector_id in ids.tolist()], dtype=bool)
        index = self._empty()
        index.add_with_ids(rows[alive], ids[alive])
        self._index = index
        self._dead.clear()


class GraphVectors:
    """The nearest by walking a graph (HNSW) over bytes, for more vectors than can all be compared.
    Making it takes seconds: do so in a thread.

    Removed ids stay in the graph, which is walked through them, and are passed over in answers;
    `dead_share` tells when it is time to make it anew. Source of the method: Malkov and Yashunin,
    "Efficient and robust approximate nearest neighbor search using hierarchical navigable small
    world graphs", 2016.
    """

    def __init__(self, dimension: int, *, ids: Sequence[int], vectors: Sequence[bytes]) -> None:
        """`vectors`: unit vectors, float32, little endian."""
        faiss.omp_set_num_threads(1)  # of this thread; the cores belong to requests
        graph = faiss.IndexHNSWSQ(
            dimension,
            faiss.ScalarQuantizer.QT_8bit,  # type: ignore[arg-type]  # faiss's stub is wrong
            _LINKS,
            faiss.METRIC_INNER_PRODUCT,
        )
        graph.hnsw.efConstruction = _BUILD_BREADTH
        graph.hnsw.efSearch = _SEARCH_BREADTH
        graph.train(_rows(vectors[:: 1 + len(vectors) // _MAX_SAMPLE], dimension))
        self._index = faiss.IndexIDMap2(graph)
        # In steps: all of them at once would be another copy of everything that is held.
        for first in range(0, len(ids), _STEP):
            rows = _rows(vectors[first : first + _STEP], dimension)
            self._index.add_with_ids(rows, np.array(ids[first : first + _STEP], dtype=np.int64))
        self._ids = set(ids)
        self._dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def dead_share(self) -> float:
        """Removed vectors among all that are held."""
        return len(self._dead) / max(1, self._index.ntotal)

    def add(self, vector_id: int, vector: Vector) -> None:
        assert vector_id not in self._ids
        assert vector_id not in self._dead, "an id in the graph cannot be given again"
        ids = np.array([vector_id], dtype=np.int64)
        self._index.add_with_ids(vector.reshape(1, -1), ids)  # [1, dimension]
        self._ids.add(vector_id)

    def remove(self, vector_id: int) -> None:
        if vector_id in self._ids:
            self._ids.discard(vector_id)
            self._dead.add(vector_id)

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        found = self._nearest(vector, limit)
        if len(found) < min(limit, len(self._ids)):
            found = self._nearest(vector, _OVERFETCH * limit)
        return found[:limit]

    def check_integrity(self) -> None:
        assert self._ids.isdisjoint(self._dead)
        assert set(faiss.vector_to_array(self._index.id_map).tolist()) == self._ids | self._dead

    def _nearest(self, vector: Vector, num_wanted: int) -> list[Match]:
        num_wanted = min(num_wanted, self._index.ntotal)
        similarities, ids = self._index.search(vector.reshape(1, -1), num_wanted)  # [1, k] each
        return [
            Match(vector_id, similarity)
            for vector_id, similarity in zip(ids[0].tolist(), similarities[0].tolist(), strict=True)
            if vector_id in self._ids  # -1 stands for nothing found
        ]


def _rows(vectors: Sequence[bytes], dimension: int) -> Vector:
    """[num_vectors, dimension]"""
    return np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(vectors), dimension)
