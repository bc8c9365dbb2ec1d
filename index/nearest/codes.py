"""Vectors at a quarter of their size: one byte a dimension, and one scale each.

Of unit vectors the inner product is known to some .001: enough to choose candidates by, which are
confirmed by the vector in the store. Pure.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from index.nearest.vectors import Vector

_MOST = 127
_LEAST = 1e-12
_SCALE_BYTES = 4


def encoded(vector: "Vector") -> bytes:
    """The scale as float32, little endian, then int8 [dimension]."""
    scale = np.float32(max(float(np.abs(vector).max()), _LEAST) / _MOST)
    code: bytes = scale.astype("<f4").tobytes() + np.rint(vector / scale).astype(np.int8).tobytes()
    return code


def decoded(codes: Sequence[bytes]) -> "Vector":
    """[num_codes, dimension]"""
    rows = np.frombuffer(b"".join(codes), dtype=np.uint8).reshape(len(codes), -1)
    scales = np.ascontiguousarray(rows[:, :_SCALE_BYTES]).view("<f4")  # [num_codes, 1]
    vectors: Vector = rows[:, _SCALE_BYTES:].view(np.int8) * scales
    return vectors
