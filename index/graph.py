"""Nearest vectors by walking a graph (HNSW) over bytes: for scopes too large to compare with all.

Source of the method: Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search
using hierarchical navigable small world graphs", 2016.
"""

from collections.abc import Sequence

import faiss
import numpy as np

from index.vectors import Match, Vector

_LINKS = 16
_BUILD_BREADTH = 80
_SEARCH_BREADTH = 96
_OVERFETCH = 4


class GraphVectors:
    """A `VectorIndex`. Making it from many vectors takes seconds: do so in a thread.

    Removed ids stay in the graph, which is walked through them, and are passed over in answers;
    `dead_share` tells when it is time to make it anew.
    """

    def __init__(self, dimension: int, *, ids: Sequence[int], vectors: Sequence[bytes]) -> None:
        faiss.omp_set_num_threads(1)  # of this thread; the cores belong to requests
        rows = np.frombuffer(b"".join(vectors), dtype="<f4").reshape(len(ids), dimension)
        graph = faiss.IndexHNSWSQ(
            dimension,
            faiss.ScalarQuantizer.QT_8bit,  # type: ignore[arg-type]  # faiss's stub is wrong
            _LINKS,
            faiss.METRIC_INNER_PRODUCT,
        )
        graph.hnsw.efConstruction = _BUILD_BREADTH
        graph.hnsw.efSearch = _SEARCH_BREADTH
        graph.train(rows)
        self._index = faiss.IndexIDMap2(graph)
        self._index.add_with_ids(rows, np.array(ids, dtype=np.int64))
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
