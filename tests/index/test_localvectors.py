"""The vectors of this process: let go of at once, and in nobody's way."""

import asyncio
import threading
from collections.abc import AsyncIterator

import numpy as np
import pytest
from sample_entries import entry, key_of

from index.entry import Snapshot
from index.nearest.localvectors import LocalVectors
from index.nearest.scopes import GROW_AT
from index.nearest.vectorplace import SemanticStats

DIMENSION = 8
SNAPSHOT = Snapshot(generation="g", sequence=0)


@pytest.fixture
async def held() -> AsyncIterator[LocalVectors]:
    """One scope, large enough for an index of its own."""
    made = LocalVectors(identity="e", dimension=DIMENSION)
    rows = np.random.default_rng(0).normal(size=(GROW_AT + 1, DIMENSION)).astype("<f4")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for place, row in enumerate(rows):
        made.add(entry(f"e{place}", SNAPSHOT, scope="s", embedder="e", embedding=row.tobytes()))
    yield made
    made.check_integrity()
    await made.close()


async def test_closing_while_a_graph_is_made_holds_up_nobody(held: LocalVectors) -> None:
    gate = threading.Event()
    assert held._scopes._builder is not None
    step = held._scopes._builder.submit(gate.wait, 30)
    closing = asyncio.ensure_future(held.close())
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert step.result(), "the loop stood still until the step was over"


async def test_what_is_cleared_is_not_found_and_can_be_added_again(held: LocalVectors) -> None:
    vector = np.eye(DIMENSION, dtype="<f4")[0]
    held.clear()
    assert held.stats() == SemanticStats(entries=0, scopes=0)
    assert await held.search("s", vector, limit=5) == ()
    held.add(entry("e0", SNAPSHOT, scope="s", embedder="e", embedding=vector.tobytes()))
    (found,) = await held.search("s", vector, limit=5)
    assert found.key == key_of("e0")
