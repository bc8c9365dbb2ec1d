"""A scheduler for tests: whatever runs concurrently stops at its pauses, and chance, seeded, says
who goes on. Nothing depends on how fast the machine is."""

import asyncio
import random
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120
"""A test that hangs fails after this."""


class Schedule:
    """Lets one paused task go on at a time, and only when all others rest."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.steps: list[str] = []
        """Who went on, in order: what is shown when a test fails."""
        self._eagerness = self.random.choice((0.0, 0.5, 0.8, 0.9, 0.97))
        """How often what has begun goes on before something else starts (`pause("start …")`)."""
        self._paused: list[tuple[str, asyncio.Future[None]]] = []
        self._num_working = 0
        self._news = asyncio.Event()

    async def pause(self, where: str) -> None:
        """Wait until chosen."""
        turn = asyncio.get_running_loop().create_future()
        mine = (where, turn)
        self._paused.append(mine)
        self._news.set()
        try:
            await turn
        finally:
            if mine in self._paused:
                self._paused.remove(mine)

    async def work(self, work: Awaitable[T]) -> T:
        """Await something of which the event loop does not know whether it is under way."""
        self._num_working += 1
        try:
            return await work
        finally:
            self._num_working -= 1
            self._news.set()

    async def drive(self, tasks: set["asyncio.Task[None]"]) -> None:
        """Choose until all of `tasks` have ended; raises what one of them raised."""
        ended = asyncio.gather(*tasks)
        ended.add_done_callback(lambda _: self._news.set())
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self._others_rest(ended):
                    self._choose()
            await ended
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _choose(self) -> None:
        under_way = [one for one in self._paused if not one[0].startswith("start")]
        eager = bool(under_way) and self.random.random() < self._eagerness
        chosen = self.random.choice(under_way if eager else self._paused)
        self._paused.remove(chosen)
        where, turn = chosen
        self.steps.append(where)
        turn.set_result(None)

    async def _others_rest(self, ended: "asyncio.Future[list[None]]") -> bool:
        """Returns when all pause, or wait for what only one that pauses can bring. False when all
        have ended."""
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # no public way to see it
        while not ended.done():
            self._news.clear()
            await asyncio.sleep(0)
            if ready:
                continue
            if self._paused and not self._num_working:
                return True
            await self._news.wait()
        return False
