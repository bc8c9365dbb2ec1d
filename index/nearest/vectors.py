"""Nearest vectors by inner product, under ids of our own.

An index only grows: who holds it knows which of its ids are alive, and has it made anew when too
many are not. The cores belong to requests, so faiss has one thread: a query is over before a second
one has begun (0.4 against 16 ms of CPU).
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import faiss
import msgspec
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Ids = NDArray[np.int64]
IsAlive = Callable[[int], bool]

_LINKS = 16
_BUILD_BREADTH = 80
_SEARCH_BREADTH = 96
"""Of the graph: M, efConstruction, efSearch in the paper."""

_MAX_SAMPLE = 20_000
"""Vectors that tell a graph the range of each dimension."""
_STEP = 1_000
"""Rows copied at once, some 0.3 s of a graph's making: between two steps it can be called off."""


class Match(msgspec.Struct, frozen=True):
    """A vector found. `similarity` is the inner product, the cosine of unit vectors, as the index
    estimates it: within some .002."""

    id: int
    similarity: float


class VectorIndex(Protocol):
    """Ids are the caller's (int64), never positions, and never given twice. Searches and `rows` may
    run in several threads at once, but not beside `add`."""

    def __len__(self) -> int:
        """Vectors held, dead ones included."""
        ...

    def add(self, ids: Ids, rows: Vector) -> None:
        """Hold unit vectors, rows of [num_vectors, dimension]."""
        ...

    def search(self, vector: Vector, *, limit: int, is_alive: IsAlive) -> list[Match]:
        """The nearest that are alive, best first, at most `limit`."""
        ...

    def rows(self) -> Iterator[tuple[Ids, Vector]]:
        """All that is held, in steps."""
        ...


class FlatVectors:
    """Every vector is compared, in half precision: of 10,000 that takes a millisecond."""

    def __init__(self, dimension: int) -> None:
        faiss.omp_set_num_threads(1)
        # Half precision: the bytes read are what a search costs.
        self._flat = faiss.IndexScalarQuantizer(
            dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
        self._index = faiss.IndexIDMap(self._flat)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, ids: Ids, rows: Vector) -> None:
        self._index.add_with_ids(rows, ids)

    def search(self, vector: Vector, *, limit: int, is_alive: IsAlive) -> list[Match]:
        found: list[Match] = []
        # More of the nearest may be dead than was allowed for.
        for num_wanted in (2 * limit, 16 * limit, len(self)):
            found = _nearest(self._index, vector, num_wanted, is_alive)
            if len(found) >= limit or num_wanted >= len(self):
                break
        return found[:limit]

    def rows(self) -> Iterator[tuple[Ids, Vector]]:
        return _rows(self._index, self._flat)


class GraphVectors:
    """The nearest by walking a graph (HNSW) over bytes, for more vectors than can all be compared.

    Dead ids stay in the graph, which is walked through them. Source of the method: Malkov and
    Yashunin, "Efficient and robust approximate nearest neighbor search using hierarchical navigable
    small world graphs", 2016.
    """

    _OVERFETCH = 4

    def __init__(self, dimension: int, *, sample: Vector) -> None:
        """`sample`: of the vectors that will be added."""
        faiss.omp_set_num_threads(1)  # of this thread: a graph is made in one of its own
        self._graph = faiss.IndexHNSWSQ(
            dimension,
            faiss.ScalarQuantizer.QT_8bit,  # type: ignore[arg-type]  # faiss's stub is wrong
            _LINKS,
            faiss.METRIC_INNER_PRODUCT,
        )
        self._graph.hnsw.efConstruction = _BUILD_BREADTH
        self._graph.hnsw.efSearch = _SEARCH_BREADTH
        self._graph.train(sample)
        self._index = faiss.IndexIDMap(self._graph)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, ids: Ids, rows: Vector) -> None:
        self._index.add_with_ids(rows, ids)

    def search(self, vector: Vector, *, limit: int, is_alive: IsAlive) -> list[Match]:
        found = _nearest(self._index, vector, limit, is_alive)
        if len(found) < limit < len(self):
            found = _nearest(self._index, vector, self._OVERFETCH * limit, is_alive)
        return found[:limit]

    def rows(self) -> Iterator[tuple[Ids, Vector]]:
        return _rows(self._index, self._graph)

    def clone(self) -> "GraphVectors":
        """One that may grow while this one answers: a copy of its memory, not of its making."""
        cloned = copy.copy(self)
        cloned._index = faiss.clone_index(self._index)  # type: ignore[assignment]  # its stub forgets the type
        cloned._graph = faiss.downcast_index(  # type: ignore[assignment]  # its stub forgets the type
            cloned._index.index
        )
        return cloned


def copied(
    dimension: int, sources: Iterable[VectorIndex], *, is_alive: IsAlive, as_graph: bool
) -> VectorIndex:
    """A new index of what is alive in others. Takes seconds: call it in a thread. What `is_alive`
    raises ends it."""
    held = tuple(sources)
    made: VectorIndex = FlatVectors(dimension)
    if as_graph:
        share = 1 + sum(map(len, held)) // _MAX_SAMPLE
        sample = np.concatenate([rows[::share] for each in held for _, rows in each.rows()])
        made = GraphVectors(dimension, sample=sample)
    for each in held:
        add_alive(made, each, is_alive=is_alive)
    return made


def add_alive(index: VectorIndex, source: VectorIndex, *, is_alive: IsAlive) -> None:
    """Add what is alive in another index."""
    for ids, rows in source.rows():
        alive = np.array([is_alive(each) for each in ids.tolist()], dtype=bool)
        index.add(ids[alive], rows[alive])


def _nearest(
    index: faiss.IndexIDMap, vector: Vector, num_wanted: int, is_alive: IsAlive
) -> list[Match]:
    num_wanted = min(num_wanted, index.ntotal)
    if num_wanted == 0:
        return []
    similarities, ids = index.search(vector.reshape(1, -1), num_wanted)  # [1, k] each
    return [
        Match(vector_id, similarity)
        for vector_id, similarity in zip(ids[0].tolist(), similarities[0].tolist(), strict=True)
        if is_alive(vector_id)  # never -1, which stands for nothing found
    ]


def _rows(index: faiss.IndexIDMap, held: faiss.Index) -> Iterator[tuple[Ids, Vector]]:
    ids = faiss.vector_to_array(index.id_map)
    for first in range(0, len(ids), _STEP):
        some = ids[first : first + _STEP]
        yield some, held.reconstruct_n(first, len(some))
