"""Searches by meaning that miss their deadline: the request goes on without them, and what they
bring is used when its answer is kept."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from index.semantic import Sought

log = logging.getLogger("rejoinder.late")

MAX_LATE = 16
"""Searches that go on behind their deadline; further ones are given up. They stand in one line with
those that are not late yet: half a batch of an embedder that cannot keep up, and no more."""
_LONGEST_S = 30.0
"""Whatever holds a search up for longer will not let it go in time for an answer."""


class Late:
    """The searches that go on. Belongs to one event loop."""

    def __init__(self, *, most: int = MAX_LATE) -> None:
        """`most`: so many at once; 0 where nobody would use what they bring."""
        self._most = most
        self._going_on: set[asyncio.Task[Sought]] = set()

    def __len__(self) -> int:
        return len(self._going_on)

    async def search(
        self, search: Coroutine[Any, Any, Sought], *, deadline_s: float
    ) -> asyncio.Task[Sought]:
        """Returns when it is done, and at the deadline at the latest: it goes on then, or is given
        up. Who is cancelled meanwhile takes it along."""
        task = asyncio.ensure_future(search)
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if done:
            return task
        if len(self._going_on) >= self._most:
            task.cancel()
            return task
        self._going_on.add(task)
        task.add_done_callback(self._ended)
        too_late = asyncio.get_running_loop().call_later(_LONGEST_S, task.cancel)
        task.add_done_callback(lambda _: too_late.cancel())
        return task

    async def close(self) -> None:
        """Give up all that go on."""
        going_on = [*self._going_on]
        for task in going_on:
            task.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Sought]) -> None:
        self._going_on.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.warning("a search by meaning failed behind its deadline", exc_info=task.exception())


def give_up(search: asyncio.Task[Sought] | None) -> None:
    """Nobody will use what it brings. A no-op where it is done, or where there is none."""
    if search is not None:
        search.cancel()


def brought(search: asyncio.Task[Sought] | None) -> Sought | None:
    """What a search has come to; None where it still goes on, was given up, failed, or where there
    is none."""
    if search is None or not search.done() or search.cancelled() or search.exception() is not None:
        return None
    return search.result()
