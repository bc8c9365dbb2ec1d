import asyncio

import pytest

from proxy.processes.corked import Corked


class Beneath:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told = []

    def write(self, data):
        self.told.append(data)

    def close(self):
        self.told.append("close")

    def is_closing(self):
        return "close" in self.told


@pytest.fixture
async def beneath():
    return Beneath()


@pytest.fixture
async def corked(beneath):
    return Corked(beneath, asyncio.get_running_loop())


async def test_writes_of_one_moment_go_out_together_at_the_next(beneath, corked):
    corked.write(b"HTTP/1.1 200")
    corked.write(b"body")
    assert beneath.told == []
    await asyncio.sleep(0)
    assert beneath.told == [b"HTTP/1.1 200body"]


async def test_a_piece_of_a_stream_goes_out_at_once(beneath, corked):
    corked.write(b"HTTP/1.1 200")
    corked.flush()
    corked.write(b"piece")
    assert beneath.told == [b"HTTP/1.1 200", b"piece"]


async def test_nothing_is_written_to_who_has_left(beneath, corked):
    corked.write(b"HTTP/1.1 200")
    beneath.close()
    corked.write(b"body")
    corked.flush()
    corked.write(b"piece")
    assert beneath.told == ["close"]


async def test_closing_writes_first(beneath, corked):
    corked.write(b"last")
    corked.close()
    assert beneath.told == [b"last", "close"]
    assert corked.is_closing()
    await asyncio.sleep(0)
    assert beneath.told == [b"last", "close"]


async def test_much_at_once_is_not_held(beneath, corked):
    for _ in range(3):
        corked.write(b"x" * 40_000)
    assert sum(map(len, beneath.told)) >= 80_000
    await asyncio.sleep(0)
    assert b"".join(beneath.told) == b"x" * 120_000
