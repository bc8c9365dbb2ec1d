"""Both spellings of embeddings, and what of them is kept."""

import base64
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proxy.embeddings.vector import as_base64, as_floats, kept

singles = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20
)
doubles = st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=20)


def spelled(numbers: list[float]) -> Raw:
    return Raw(msgspec.json.encode(numbers))


def packed(numbers: list[float]) -> Raw:
    data = struct.pack(f"<{len(numbers)}f", *numbers)
    return Raw(msgspec.json.encode(base64.b64encode(data).decode()))


@given(singles)
def test_what_float32_holds_is_kept_as_bytes_and_comes_back_as_the_same_numbers(numbers):
    vector = kept(spelled(numbers))
    assert vector is not None
    assert bytes(vector) == bytes(packed(numbers)) == bytes(as_base64(vector))
    assert msgspec.json.decode(as_floats(vector)) == numbers


@given(singles)
def test_base64_stays_as_it_came_and_gives_the_very_numbers(numbers):
    vector = kept(packed(numbers))
    assert vector is not None
    assert bytes(as_base64(vector)) == bytes(packed(numbers))
    assert msgspec.json.decode(as_floats(vector)) == numbers


@given(doubles)
def test_numbers_finer_than_float32_come_back_as_they_were_written(numbers):
    vector = kept(spelled(numbers))
    assert vector is not None
    assert msgspec.json.decode(as_floats(vector)) == numbers
    assert bytes(as_base64(vector)) == bytes(packed(numbers))


def test_digits_that_would_change_are_kept_as_text():
    written = Raw(b"[0.1, 1.50, -0.3]")
    vector = kept(written)
    assert vector is not None
    assert bytes(as_floats(vector)) == b"[0.1, 1.50, -0.3]"


def test_whole_numbers_stay_whole():
    vector = kept(Raw(b"[1,-2,3]"))
    assert vector is not None
    assert bytes(as_floats(vector)) == b"[1,-2,3]"


@pytest.mark.parametrize(
    "spelling",
    [b"null", b"[]", b'""', b'"AAA"', b'"not base64"', b'"AACAfw=="', b"[1e39]", b'["1"]', b"{}",
     b"[null]", b"[[1.0]]", b"[1" + b"0" * 400 + b"]", b'"AADAfw=="'],
)  # fmt: skip
def test_what_is_no_vector_is_not_kept(spelling):
    assert kept(Raw(spelling)) is None
