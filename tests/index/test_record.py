"""The stored form of entries."""

import pytest
from sample_entries import entry

from index import record
from index.entry import FORMAT_VERSION, Snapshot

STORED = record.encode(entry("a", Snapshot(generation="g", sequence=3), embedding=bytes(64)))


def test_record_is_read_back_equal():
    assert record.decode(STORED) == entry(
        "a", Snapshot(generation="g", sequence=3), embedding=bytes(64)
    )


def test_record_of_another_version_is_ignored():
    assert record.decode(bytes((FORMAT_VERSION + 1,)) + STORED[1:]) is None


@pytest.mark.parametrize("length", [0, 1, 4, 5, len(STORED) // 2, len(STORED) - 1])
def test_torn_record_is_ignored(length):
    assert record.decode(STORED[:length]) is None


def test_record_with_any_bit_flipped_is_ignored():
    for position in range(len(STORED)):
        damaged = bytearray(STORED)
        damaged[position] ^= 0x10
        assert record.decode(bytes(damaged)) is None
