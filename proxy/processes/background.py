"""What runs beside the requests."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("rejoinder.background")


class Background:
    """Works that end by themselves or with the process. One that fails says so."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Needs a running loop."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel what still runs."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Nobody waits for it, so nobody else would ever hear of it.
            log.error("what ran beside the requests has failed", exc_info=error)
