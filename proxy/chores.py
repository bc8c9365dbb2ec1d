"""What runs beside the requests: the vector index follows the store, and the store is swept."""

import asyncio
import logging
from collections.abc import Callable

from index.errors import StoreFault
from index.semantic import Semantic
from index.store import Store
from proxy.metrics import Metrics

log = logging.getLogger("rejoinder.chores")

_FOLLOW_EVERY_S = 0.5
_SWEEP_EVERY_S = 30.0
_CHANGES_A_TURN = 500
_ADDED_AT_ONCE = 16


async def follow(store: Store, semantic: Semantic, *, metrics: Metrics) -> None:
    """Keep a vector index in step with the store's change feed. Runs until cancelled.

    Entries of this process are indexed as they are stored; what comes through the feed are those of
    other processes, those from before the start, and deletions.
    """
    cursor = 0
    while True:
        try:
            changes = await store.changes(cursor, limit=_CHANGES_A_TURN)
        except StoreFault as fault:
            metrics.faults.labels("store").inc()
            log.warning("the vector index cannot follow the store: %s", fault)
            await asyncio.sleep(_FOLLOW_EVERY_S)
            continue
        if changes.reset:
            semantic.clear()
            cursor = 0
            continue
        for key in changes.deleted:
            semantic.remove(key)
        for place, entry in enumerate(changes.put):
            semantic.add(entry)
            if place % _ADDED_AT_ONCE == 0:
                await asyncio.sleep(0)  # in a large scope each takes some .3 ms
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
