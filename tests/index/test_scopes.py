"""Scopes: small and large ones answer alike, and never from one another."""

import numpy as np
import pytest

from index.nearest.scopes import GROW_AT, Scopes

DIMENSION = 8
NEAR = 0.02
"""What an estimate of so few dimensions may be off."""


def unit_bytes(count: int, *, seed: int = 0) -> list[bytes]:
    rows = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype("<f4")
    return [row.tobytes() for row in rows / np.linalg.norm(rows, axis=1, keepdims=True)]


def read(vector: bytes) -> np.ndarray:
    return np.frombuffer(vector, dtype="<f4")


@pytest.fixture
def scopes():
    made = Scopes(DIMENSION)
    yield made
    made.check_integrity()


def test_an_entry_is_found_only_in_its_own_scope(scopes: Scopes) -> None:
    vector = unit_bytes(1)[0]
    scopes.add("mine", 1, vector)
    scopes.add("theirs", 2, vector)
    assert [match.id for match in scopes.search("mine", read(vector), limit=9)] == [1]
    assert scopes.search("nobody's", read(vector), limit=9) == []


def test_a_scope_answers_the_same_before_and_after_it_has_grown(scopes: Scopes) -> None:
    vectors = unit_bytes(2 * GROW_AT)
    query = read(unit_bytes(1, seed=9)[0])
    for place, vector in enumerate(vectors):
        scopes.add("s", place, vector)
        if place in {0, GROW_AT - 1, GROW_AT, 2 * GROW_AT - 1}:
            exact = [float(read(vectors[i]) @ query) for i in range(place + 1)]
            found = scopes.search("s", query, limit=5)
            assert len(found) == min(5, place + 1)
            for match, similarity in zip(found, sorted(exact, reverse=True), strict=False):
                assert exact[match.id] == pytest.approx(similarity, abs=NEAR)
                assert match.similarity == pytest.approx(similarity, abs=NEAR)


def test_a_scope_that_is_emptied_is_forgotten(scopes: Scopes) -> None:
    for place, vector in enumerate(unit_bytes(GROW_AT + 10)):
        scopes.add("large", place, vector)
    scopes.add("small", 5000, unit_bytes(1)[0])
    for place in range(GROW_AT + 10):
        scopes.remove("large", place)
    scopes.remove("small", 5000)
    scopes.remove("small", 5000)
    assert len(scopes) == 0


def test_many_tiny_scopes_stay_apart(scopes: Scopes) -> None:
    vectors = unit_bytes(5000)
    for place, vector in enumerate(vectors):
        scopes.add(f"s{place // 2}", place, vector)
    assert len(scopes) == 2500
    found = scopes.search("s1200", read(vectors[2400]), limit=8)
    assert {match.id for match in found} == {2400, 2401}
    assert found[0].id == 2400
