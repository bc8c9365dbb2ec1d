"""Flat and graph: ids of our own, the dead passed over, copies of what is alive."""

from collections.abc import Callable

import numpy as np
import pytest

from index.nearest.vectors import FlatVectors, GraphVectors, Vector, VectorIndex, copied

DIMENSION = 16


def unit_vectors(count: int, *, seed: int = 0) -> Vector:
    rows = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def flat(vectors: Vector) -> VectorIndex:
    return FlatVectors(DIMENSION)


def graph(vectors: Vector) -> VectorIndex:
    return GraphVectors(DIMENSION, sample=vectors)


@pytest.fixture(params=[flat, graph], ids=["flat", "graph"])
def filled(request: pytest.FixtureRequest) -> Callable[[Vector, list[int]], VectorIndex]:
    def fill(vectors: Vector, ids: list[int]) -> VectorIndex:
        index: VectorIndex = request.param(vectors)
        index.add(np.array(ids, dtype=np.int64), vectors)
        return index

    return fill


Filled = Callable[[Vector, list[int]], VectorIndex]


def test_the_nearest_are_found_under_the_callers_ids_best_first(filled: Filled) -> None:
    vectors = unit_vectors(50)
    index = filled(vectors, [10**12 + 7 * place for place in range(50)])
    exact = np.argsort(-(vectors @ vectors[20]))[:5]
    found = index.search(vectors[20], limit=5, is_alive=lambda _: True)
    assert [match.id for match in found] == [10**12 + 7 * int(place) for place in exact]
    assert found[0].similarity == pytest.approx(1.0, abs=0.01)


def test_the_dead_are_never_found(filled: Filled) -> None:
    vectors = unit_vectors(300)
    index = filled(vectors, list(range(300)))
    for query in vectors[:20]:
        found = index.search(query, limit=10, is_alive=lambda each: each % 2 == 1)
        assert len(found) == 10
        assert all(match.id % 2 == 1 for match in found)


def test_the_last_one_alive_is_found_among_many_dead() -> None:
    vectors = unit_vectors(600)
    index = flat(vectors)
    index.add(np.arange(600), vectors)
    farthest = int(np.argmin(vectors @ vectors[0]))
    found = index.search(vectors[0], limit=3, is_alive=lambda each: each == farthest)
    assert [match.id for match in found] == [farthest]


@pytest.mark.parametrize("as_graph", [False, True], ids=["into a flat one", "into a graph"])
def test_a_copy_holds_what_is_alive_in_all_of_its_sources(filled: Filled, as_graph: bool) -> None:
    vectors = unit_vectors(400)
    sources = [
        filled(vectors[:200], list(range(200))),
        filled(vectors[200:], list(range(200, 400))),
    ]
    made = copied(DIMENSION, sources, is_alive=lambda each: each % 4 == 0, as_graph=as_graph)
    assert len(made) == 100
    found = made.search(vectors[8], limit=1, is_alive=lambda _: True)
    assert [match.id for match in found] == [8]


def test_an_empty_index_finds_nothing() -> None:
    index = flat(unit_vectors(0))
    assert index.search(unit_vectors(1)[0], limit=3, is_alive=lambda _: True) == []
