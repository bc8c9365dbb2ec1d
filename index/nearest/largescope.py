"""A scope of many vectors, searched through an index.

It begins flat. Past a size a graph is made in a thread, while what is held goes on answering; in
the same way the graph grows, and an index in which too much is dead is made anew:

    parts     answer, and never change: a graph, or flat ones; while another index is made of them,
              and where that failed, several
    tail      flat, answers too: what was added since. It is part of what is made next
    making    an index of all parts: takes their place
"""

import logging
import threading
from concurrent.futures import CancelledError, Executor, Future
from functools import partial

import numpy as np

from index.nearest.vectors import (
    FlatVectors,
    GraphVectors,
    IsAlive,
    Match,
    Vector,
    VectorIndex,
    add_alive,
    copied,
)

_MAX_DEAD_SHARE = 0.25
_LEAST_DEAD = 64
_TAIL_SHARE = 0.25
"""A tail of so much of what a graph begins with goes into the graph: searching it takes time."""
_GRAPH_SHARE = 0.005
"""And of so much of a large graph, which is copied to grow: 0.5 s and its memory for a million."""
_MOST_FLAT = 2
"""So many times as many as a graph begins with: a millisecond of a search."""
_GROWTH_AFTER_FAULT = 1.25
"""What could not be made is tried again when the scope holds so many times as many."""

logger = logging.getLogger(__name__)


class LargeScope:
    """Used from one thread; only the making of an index is done in another (`builder`).

    Whatever fails in there costs speed, no match. `stopping`: nothing is made any more, and what is
    in the making ends at its next step.
    """

    def __init__(
        self, dimension: int, *, builder: Executor, stopping: threading.Event, graph_at: int
    ) -> None:
        self._dimension = dimension
        self._builder = builder
        self._stopping = stopping
        self._graph_at = graph_at
        self._parts: tuple[VectorIndex, ...] = ()
        self._tail = FlatVectors(dimension)
        self._alive: set[int] = set()
        self._making: Future[VectorIndex] | None = None
        self._least_to_make = 0

    def __len__(self) -> int:
        return len(self._alive)

    @property
    def is_graph(self) -> bool:
        """Whether searches walk a graph by now."""
        return any(isinstance(part, GraphVectors) for part in self._parts)

    @property
    def is_behind(self) -> bool:
        """Whether more vectors wait for the graph in the making than are quickly compared."""
        self._keep_up()
        num_flat = sum(len(part) for part in self._all() if isinstance(part, FlatVectors))
        return self._making is not None and num_flat > _MOST_FLAT * self._graph_at

    def add(self, vector_id: int, vector: Vector) -> None:
        """Hold a unit vector under an id that was never held before."""
        self._alive.add(vector_id)
        self._tail.add(np.array([vector_id], dtype=np.int64), vector.reshape(1, -1))
        self._keep_up()

    def remove(self, vector_id: int) -> None:
        """A no-op for an id that is not held."""
        self._alive.discard(vector_id)
        self._keep_up()

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        self._keep_up()
        is_alive = self._alive.__contains__
        found = [
            match
            for part in self._all()
            for match in part.search(vector, limit=limit, is_alive=is_alive)
        ]
        return sorted(found, key=lambda match: -match.similarity)[:limit]

    def check_integrity(self) -> None:
        """Assert what must always hold. For tests."""
        held = [each for index in self._all() for ids, _ in index.rows() for each in ids.tolist()]
        assert len(held) == len(set(held))
        assert self._alive.issubset(held)

    def _all(self) -> tuple[VectorIndex, ...]:
        return (*self._parts, self._tail)

    def _keep_up(self) -> None:
        if self._making is not None and self._making.done():
            self._change_places(self._making)
        if self._making is None and self._wants_another():
            self._begin()

    def _wants_another(self) -> bool:
        if self._stopping.is_set() or len(self._alive) < self._least_to_make:
            return False
        return self._has_grown() or self._much_is_dead()

    def _has_grown(self) -> bool:
        if not self.is_graph:
            return len(self._alive) > self._graph_at
        least = max(_TAIL_SHARE * self._graph_at, _GRAPH_SHARE * len(self._parts[0]))
        return len(self._tail) > least

    def _much_is_dead(self) -> bool:
        num_held = sum(map(len, self._all()))
        return num_held - len(self._alive) >= max(_LEAST_DEAD, _MAX_DEAD_SHARE * num_held)

    def _begin(self) -> None:
        is_alive = partial(_is_alive, self._alive, self._stopping)
        grows = self.is_graph and not self._much_is_dead()
        self._parts, self._tail = self._all(), FlatVectors(self._dimension)
        if grows:
            self._making = self._builder.submit(_grown, self._parts, is_alive=is_alive)
            return
        self._making = self._builder.submit(
            copied,
            self._dimension,
            self._parts,
            is_alive=is_alive,
            as_graph=len(self._alive) > self._graph_at,
        )

    def _change_places(self, making: Future[VectorIndex]) -> None:
        self._making = None
        fault = None if making.cancelled() else making.exception()
        if fault is None and not making.cancelled():
            self._parts, self._least_to_make = (making.result(),), 0
            return
        self._least_to_make = int(_GROWTH_AFTER_FAULT * len(self._alive)) + 1
        if not self._stopping.is_set():
            logger.warning("no index could be made of %d vectors: %r", len(self), fault)


def _is_alive(alive: set[int], stopping: threading.Event, vector_id: int) -> bool:
    if stopping.is_set():
        raise CancelledError
    return vector_id in alive


def _grown(parts: tuple[VectorIndex, ...], *, is_alive: IsAlive) -> VectorIndex:
    """The graph among them, with what is alive in the others added to it."""
    graph = next(part for part in parts if isinstance(part, GraphVectors))
    grown = graph.clone()
    for part in parts:
        if part is not graph:
            add_alive(grown, part, is_alive=is_alive)
    return grown
