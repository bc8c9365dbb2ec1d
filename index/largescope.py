"""A scope of many vectors, searched through an index.

It begins flat. Past a size a graph is made in a thread, while the flat index goes on answering; in
the same way an index in which too much is dead is made anew. What is being copied must not change:

    index     answers, and grows; while another is made of it, it only answers
    fresh     what was added meanwhile, answers too: several, where the making took long
    making    of `index`, then of what is in `fresh` but for the last: then it takes their place
"""

from concurrent.futures import Executor, Future

import numpy as np

from index.vectors import FlatVectors, Match, Vector, VectorIndex, add_alive, copied

_MAX_DEAD_SHARE = 0.25
_LEAST_DEAD = 64
_MAX_INLINE = 64
"""As many fresh vectors are added at once; more go to the thread first."""


class LargeScope:
    """Used from one thread; only the making of an index is done in another (`builder`)."""

    def __init__(self, dimension: int, *, builder: Executor, graph_at: int) -> None:
        self._dimension = dimension
        self._builder = builder
        self._graph_at = graph_at
        self._index: VectorIndex = FlatVectors(dimension)
        self._is_graph = False
        self._alive: set[int] = set()
        self._fresh: list[FlatVectors] = []
        self._making: Future[VectorIndex] | None = None
        self._making_graph = False

    def __len__(self) -> int:
        return len(self._alive)

    @property
    def is_graph(self) -> bool:
        """Whether searches walk a graph by now."""
        return self._is_graph

    def add(self, vector_id: int, vector: Vector) -> None:
        """Hold a unit vector under an id that was never held before."""
        self._alive.add(vector_id)
        growing = self._fresh[-1] if self._fresh else self._index
        growing.add(np.array([vector_id], dtype=np.int64), vector.reshape(1, -1))
        self._keep_up()

    def remove(self, vector_id: int) -> None:
        """A no-op for an id that is not held."""
        self._alive.discard(vector_id)
        self._keep_up()

    def search(self, vector: Vector, *, limit: int) -> list[Match]:
        self._keep_up()
        is_alive = self._alive.__contains__
        found = self._index.search(vector, limit=limit, is_alive=is_alive)
        for fresh in self._fresh:
            found += fresh.search(vector, limit=limit, is_alive=is_alive)
        return sorted(found, key=lambda match: -match.similarity)[:limit]

    def check_integrity(self) -> None:
        """Assert what must always hold. For tests."""
        assert (self._making is None) == (not self._fresh)
        held = [each for index in self._all() for ids, _ in index.rows() for each in ids.tolist()]
        assert len(held) == len(set(held))
        assert self._alive.issubset(held)

    def _all(self) -> tuple[VectorIndex, ...]:
        return (self._index, *self._fresh)

    def _keep_up(self) -> None:
        if self._making is None:
            if self._wants_another():
                self._begin()
        elif self._making.done():
            self._change_places(self._making.result())

    def _wants_another(self) -> bool:
        num_dead = len(self._index) - len(self._alive)
        if num_dead >= max(_LEAST_DEAD, _MAX_DEAD_SHARE * len(self._index)):
            return True
        return not self._is_graph and len(self._alive) > self._graph_at

    def _begin(self) -> None:
        self._making_graph = len(self._alive) > self._graph_at
        self._fresh = [FlatVectors(self._dimension)]
        self._making = self._builder.submit(
            copied,
            self._dimension,
            (self._index,),
            is_alive=self._alive.__contains__,
            as_graph=self._making_graph,
        )

    def _change_places(self, made: VectorIndex) -> None:
        """If it has caught up; else that is what the thread does next."""
        last = self._fresh[-1]
        if len(last) > _MAX_INLINE:
            self._fresh.append(FlatVectors(self._dimension))
            self._making = self._builder.submit(self._caught_up, made, last)
            return
        self._index = self._caught_up(made, last)
        self._is_graph, self._fresh, self._making = self._making_graph, [], None

    def _caught_up(self, made: VectorIndex, fresh: VectorIndex) -> VectorIndex:
        add_alive(made, fresh, is_alive=self._alive.__contains__)
        return made
