"""Vectors at a quarter of their size."""

import numpy as np

from index.nearest.codes import decoded, encoded


def test_the_similarity_of_coded_vectors_is_off_by_less_than_a_threshold_can_tell() -> None:
    rows = np.random.default_rng(0).normal(size=(500, 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    near = rows + 0.02 * rows[::-1]
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    codes = [encoded(row) for row in rows]
    assert {len(code) for code in codes} == {4 + 384}
    off = np.einsum("nd,nd->n", decoded(codes), near) - np.einsum("nd,nd->n", rows, near)
    assert np.abs(off).max() < 0.002


def test_a_vector_of_nothing_stays_nothing() -> None:
    assert not decoded([encoded(np.zeros(8, dtype=np.float32))]).any()
