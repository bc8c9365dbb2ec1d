"""The flat index: ids of our own, tombstones, sweeping."""

import numpy as np
import pytest

from index.vectors import FlatVectors, Vector

DIMENSION = 16


def unit_vectors(count: int, *, seed: int = 0) -> list[Vector]:
    rows = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return list(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@pytest.fixture
def index():
    made = FlatVectors(DIMENSION)
    yield made
    made.check_integrity()


def test_the_nearest_are_found_under_the_callers_ids_best_first(index: FlatVectors) -> None:
    vectors = unit_vectors(50)
    for place, vector in enumerate(vectors):
        index.add(10**12 + 7 * place, vector)
    query = vectors[20]
    exact = np.argsort([-float(vector @ query) for vector in vectors])[:5]
    found = index.search(query, limit=5)
    assert [match.id for match in found] == [10**12 + 7 * int(place) for place in exact]
    assert found[0].similarity == pytest.approx(1.0, abs=1e-3)


def test_a_removed_vector_is_never_found_again(index: FlatVectors) -> None:
    vectors = unit_vectors(300)
    for place, vector in enumerate(vectors):
        index.add(place, vector)
    for place in range(0, 300, 2):
        index.remove(place)
    index.remove(9999)
    assert len(index) == 150
    for query in vectors[:20]:
        found = index.search(query, limit=10)
        assert len(found) == 10
        assert all(match.id % 2 == 1 for match in found)


def test_all_that_are_left_are_found_when_most_are_dead(index: FlatVectors) -> None:
    vectors = unit_vectors(60)
    for place, vector in enumerate(vectors):
        index.add(place, vector)
    query = vectors[0]
    farthest = min(range(60), key=lambda place: float(vectors[place] @ query))
    for place in range(60):
        if place != farthest:
            index.remove(place)
    assert [match.id for match in index.search(query, limit=3)] == [farthest]


def test_an_id_can_be_used_again_after_its_removal(index: FlatVectors) -> None:
    first, second = unit_vectors(2)
    index.add(1, first)
    index.remove(1)
    index.add(1, second)
    assert index.search(second, limit=5)[0].similarity == pytest.approx(1.0, abs=1e-3)
    assert len(index.search(second, limit=5)) == 1


def test_an_empty_index_finds_nothing(index: FlatVectors) -> None:
    assert index.search(unit_vectors(1)[0], limit=3) == []
