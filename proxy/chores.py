"""What runs beside the requests: the vector index follows the store, and the store is swept."""

import asyncio
import logging
import time
from collections.abc import Callable

from index.errors import StoreFault
from index.semantic import Semantic
from index.store import Changes, Store
from proxy.observing.metrics import Metrics

log = logging.getLogger("rejoinder.chores")

_FOLLOW_EVERY_S = 0.5
_SWEEP_EVERY_S = 30.0
_CHANGES_A_PAGE = 500
_TURN_S = 0.002
"""After so long at a time requests come first: a page takes longer."""
_BEHIND_S = 0.05


async def follow(
    store: Store,
    semantic: Semantic,
    *,
    metrics: Metrics,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Keep a vector index in step with the store's change feed. Runs until cancelled.

    Entries of this process are indexed as they are stored; what comes through the feed are those of
    other processes, those from before the start, and deletions.
    """
    cursor = 0
    while True:
        try:
            changes = await store.changes(cursor, limit=_CHANGES_A_PAGE)
        except StoreFault as fault:
            metrics.faults.labels("store").inc()
            log.warning("the vector index cannot follow the store: %s", fault)
            await asyncio.sleep(_FOLLOW_EVERY_S)
            continue
        if changes.reset:
            semantic.clear()
            cursor = 0
            continue
        await _apply(changes, semantic, clock=clock)
        caught_up = changes.cursor == cursor
        cursor = changes.cursor
        await asyncio.sleep(_FOLLOW_EVERY_S if caught_up else 0)


async def sweep(store: Store, *, clock: Callable[[], float], metrics: Metrics) -> None:
    """Free what is purged or past its time, now and then. Runs until cancelled."""
    while True:
        await asyncio.sleep(_SWEEP_EVERY_S)
        try:
            freed = await store.sweep(now=clock())
        except StoreFault as fault:
            metrics.faults.labels("store").inc()
            log.warning("the store cannot be swept: %s", fault)
            continue
        if freed:
            log.debug("%d entries swept", freed)


async def _apply(changes: Changes, semantic: Semantic, *, clock: Callable[[], float]) -> None:
    turn = _Turn(clock)
    for key in changes.deleted:
        semantic.remove(key)
        await turn.give_way()
    for entry in changes.put:
        while semantic.is_behind(entry.scope):  # noqa: ASYNC110  (a thread makes the graph)
            await asyncio.sleep(_BEHIND_S)
        semantic.add(entry)
        await turn.give_way()


class _Turn:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = clock()

    async def give_way(self) -> None:
        """To requests, when it has lasted long enough."""
        if self._clock() - self._begun >= _TURN_S:
            await asyncio.sleep(0)
            self._begun = self._clock()
