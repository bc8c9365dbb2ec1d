"""A second request beside a slow first one; whichever is good first is taken."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def hedged(
    first: Coroutine[Any, Any, T],
    second: Callable[[], Coroutine[Any, Any, T] | None],
    *,
    after_s: float,
    is_good: Callable[[T], bool],
    drop: Callable[[T], Awaitable[None]],
) -> list[T]:
    """Results in the order in which they came; the last one is good, unless none is.

    `second` is called when the first has taken longer than `after_s`; None means that there is
    nobody else to ask. The loser is cancelled and awaited; a result that it already had is dropped.
    So are both when this is cancelled.
    """
    tasks = [asyncio.ensure_future(first)]
    results: list[T] = []
    taken: set[asyncio.Task[T]] = set()
    try:
        await asyncio.wait(tasks, timeout=after_s)
        other = None if tasks[0].done() else second()
        if other is not None:
            tasks.append(asyncio.ensure_future(other))
        while len(taken) < len(tasks) and not (results and is_good(results[-1])):
            waiting = [task for task in tasks if task not in taken]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            ready = next(task for task in waiting if task in done)
            taken.add(ready)
            results.append(ready.result())
        return results
    except BaseException:
        for result in results:
            await drop(result)
        raise
    finally:
        await _give_up([task for task in tasks if task not in taken], drop)


async def _give_up(tasks: list[asyncio.Task[T]], drop: Callable[[T], Awaitable[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and task.exception() is None:
            await drop(task.result())
