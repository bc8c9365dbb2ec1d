"""A large scope changes from flat to graph under way, and loses nothing."""

import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from index.nearest.largescope import LargeScope

DIMENSION = 16
GRAPH_AT = 300


class HeldBuilder(ThreadPoolExecutor):
    """A builder whose work begins when the test says so."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.held: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.held.append((future, lambda: fn(*args, **kwargs)))
        return future

    def work(self) -> None:
        held, self.held = self.held, []
        for future, make in held:
            try:
                future.set_result(make())
            except (CancelledError, MemoryError) as fault:
                future.set_exception(fault)


def unit_bytes(count: int, *, seed: int) -> list[bytes]:
    rows = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype("<f4")
    return [row.tobytes() for row in rows / np.linalg.norm(rows, axis=1, keepdims=True)]


def read(vector: bytes) -> np.ndarray:
    return np.frombuffer(vector, dtype="<f4")


@pytest.fixture
def builder() -> HeldBuilder:
    return HeldBuilder()


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def scope(builder: HeldBuilder, stopping: threading.Event):
    made = LargeScope(DIMENSION, builder=builder, stopping=stopping, graph_at=GRAPH_AT)
    yield made
    made.check_integrity()


def recall(scope: LargeScope, live: dict[int, bytes]) -> float:
    """Share of the true nearest five that twenty searches find."""
    found = 0
    for query in map(read, unit_bytes(20, seed=99)):
        true = sorted(live, key=lambda i: -float(read(live[i]) @ query))[:5]
        found += len(set(true) & {match.id for match in scope.search(query, limit=5)})
    return found / 100


def test_a_scope_that_grows_is_searched_through_a_graph_that_finds_the_nearest(
    scope: LargeScope, builder: HeldBuilder
) -> None:
    live = dict(enumerate(unit_bytes(GRAPH_AT + 50, seed=1)))
    for vector_id, vector in live.items():
        scope.add(vector_id, read(vector))
    assert not scope.is_graph
    assert recall(scope, live) == 1.0
    builder.work()
    assert recall(scope, live) >= 0.95
    assert scope.is_graph


@pytest.mark.parametrize("num_more", [10, GRAPH_AT + 50], ids=["few", "more than a graph needs"])
def test_what_changes_while_the_graph_is_made_is_not_lost(
    scope: LargeScope, builder: HeldBuilder, num_more: int
) -> None:
    live = dict(enumerate(unit_bytes(GRAPH_AT + 1, seed=2)))
    for vector_id, vector in live.items():
        scope.add(vector_id, read(vector))
    assert builder.held
    for place, vector in enumerate(unit_bytes(num_more, seed=3)):
        live[1000 + place] = vector
        scope.add(1000 + place, read(vector))
        if place % 4 == 0:
            scope.remove(place)
            live.pop(place, None)
    while builder.held:
        builder.work()
        scope.search(read(live[1000]), limit=1)
    assert scope.is_graph
    assert len(scope) == len(live)
    assert scope.search(read(live[1000]), limit=1)[0].id == 1000
    assert recall(scope, live) >= 0.95


def test_a_graph_in_which_much_is_dead_is_made_anew(
    scope: LargeScope, builder: HeldBuilder
) -> None:
    live = dict(enumerate(unit_bytes(GRAPH_AT + 1, seed=4)))
    for vector_id, vector in live.items():
        scope.add(vector_id, read(vector))
    builder.work()
    scope.search(read(live[0]), limit=1)
    for vector_id in range(GRAPH_AT // 3):
        scope.remove(vector_id)
        del live[vector_id]
    assert builder.held
    assert recall(scope, live) >= 0.95
    builder.work()
    assert recall(scope, live) >= 0.95


def test_a_graph_grows_in_the_thread_and_never_while_it_answers(
    scope: LargeScope, builder: HeldBuilder
) -> None:
    live = dict(enumerate(unit_bytes(2 * GRAPH_AT + 10, seed=6)))
    for vector_id in range(GRAPH_AT + 1):
        scope.add(vector_id, read(live[vector_id]))
    builder.work()
    scope.search(read(live[0]), limit=1)
    (graph,) = scope._parts
    for vector_id in range(GRAPH_AT + 1, len(live)):
        scope.add(vector_id, read(live[vector_id]))
    assert builder.held
    assert recall(scope, live) >= 0.95
    builder.work()
    assert recall(scope, live) >= 0.95
    assert len(graph) == GRAPH_AT + 1
    grown = scope._parts[0]
    assert len(grown) > len(graph)
    (found,) = grown.search(read(live[GRAPH_AT + 1]), limit=1, is_alive=live.__contains__)
    assert found.id == GRAPH_AT + 1


def test_who_adds_many_is_told_to_wait_only_while_a_graph_is_in_the_making(
    scope: LargeScope, builder: HeldBuilder
) -> None:
    rows = list(map(read, unit_bytes(4 * GRAPH_AT, seed=10)))
    for vector_id, row in enumerate(rows):
        assert scope.is_behind == (vector_id > 2 * GRAPH_AT)
        scope.add(vector_id, row)
        if vector_id == 2 * GRAPH_AT:
            break
    while scope.is_behind:
        builder.work()
    for vector_id in range(2 * GRAPH_AT + 1, 4 * GRAPH_AT):
        scope.add(vector_id, rows[vector_id])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("index.nearest.largescope._grown", no_memory)
        assert scope.is_behind
        builder.work()
        assert not scope.is_behind


def test_where_a_graph_cannot_be_made_searches_go_on_and_it_is_tried_again_later(
    scope: LargeScope, builder: HeldBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    live = dict(enumerate(unit_bytes(2 * GRAPH_AT, seed=7)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("index.nearest.largescope.copied", no_memory)
        for vector_id in range(GRAPH_AT + 1):
            scope.add(vector_id, read(live[vector_id]))
        builder.work()
    for vector_id in range(GRAPH_AT + 1, len(live)):
        (found,) = scope.search(read(live[vector_id - 1]), limit=1)
        assert found.id == vector_id - 1
        assert len(builder.held) <= (vector_id > 1.25 * GRAPH_AT)
        scope.add(vector_id, read(live[vector_id]))
    assert "no index could be made of 301 vectors: MemoryError" in caplog.text
    builder.work()
    assert recall(scope, live) >= 0.95
    assert scope.is_graph


def no_memory(*_: Any, **__: Any) -> None:
    raise MemoryError


def test_who_stops_ends_what_is_in_the_making_and_begins_nothing_more(
    scope: LargeScope, builder: HeldBuilder, stopping: threading.Event
) -> None:
    live = dict(enumerate(unit_bytes(2 * GRAPH_AT, seed=8)))
    for vector_id in range(GRAPH_AT + 1):
        scope.add(vector_id, read(live[vector_id]))
    (making, _) = builder.held[0]
    stopping.set()
    builder.work()
    assert isinstance(making.exception(), CancelledError)
    for vector_id in range(GRAPH_AT + 1, len(live)):
        scope.add(vector_id, read(live[vector_id]))
    assert not builder.held
    assert recall(scope, live) == 1.0


def test_searches_and_changes_from_the_first_to_the_last_step_of_a_real_build_are_right() -> None:
    with ThreadPoolExecutor(max_workers=1) as builder:
        scope = LargeScope(
            DIMENSION, builder=builder, stopping=threading.Event(), graph_at=GRAPH_AT
        )
        live: dict[int, bytes] = {}
        for vector_id, vector in enumerate(unit_bytes(6 * GRAPH_AT, seed=5)):
            scope.add(vector_id, read(vector))
            live[vector_id] = vector
            if vector_id % 7 == 3:
                scope.remove(vector_id - 3)
                del live[vector_id - 3]
            if vector_id % 25 == 0:
                (found,) = scope.search(read(vector), limit=1)
                assert (found.id, round(found.similarity, 2)) == (vector_id, 1.0)
        while not scope.is_graph:  # it catches up in steps
            builder.submit(int).result()
            scope.search(read(live[3]), limit=1)
        assert recall(scope, live) >= 0.95
        assert len(scope) == len(live)
        scope.check_integrity()
