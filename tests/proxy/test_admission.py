"""Places at an upstream, and the queue before them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import UpstreamBusy
from proxy.settings.units import Duration
from proxy.settings.upstreams import Queue
from proxy.upstreams.admission import Admission


def admission(max_in_flight: int = 1, length: int = 8, timeout_s: float = 60) -> Admission:
    queue = Queue(length=length, timeout=Duration(timeout_s))
    return Admission("u", max_in_flight=max_in_flight, queue=queue)


async def waiting(places: Admission, number: int) -> None:
    async with asyncio.timeout(20):
        while places.waiting != number:
            await asyncio.sleep(0)


async def test_who_waits_is_served_in_the_order_of_coming() -> None:
    places = admission()
    served: list[int] = []

    async def one(number: int) -> None:
        await places.enter()
        served.append(number)
        places.leave()

    await places.enter()
    tasks = []
    for number in range(5):
        tasks.append(asyncio.create_task(one(number)))
        await waiting(places, number + 1)
    places.leave()
    await asyncio.gather(*tasks)
    assert served == [0, 1, 2, 3, 4]
    assert places.in_flight == 0


async def test_nobody_overtakes_the_queue() -> None:
    places = admission()
    await places.enter()
    first = asyncio.create_task(places.enter())
    await waiting(places, 1)
    places.leave()
    # The place is the first waiter's already, although that has not run yet.
    assert not places.has_room
    second = asyncio.create_task(places.enter())
    await first
    assert not second.done()
    places.leave()
    await second


async def test_a_waiter_that_is_cancelled_frees_its_place_in_the_queue() -> None:
    places = admission(length=1)
    await places.enter()
    gone = asyncio.create_task(places.enter())
    await waiting(places, 1)
    gone.cancel()
    await asyncio.wait({gone})
    assert places.waiting == 0
    stays = asyncio.create_task(places.enter())
    await waiting(places, 1)
    places.leave()
    await stays


async def test_a_place_given_in_the_moment_of_a_cancel_goes_to_the_next() -> None:
    places = admission()
    await places.enter()
    gone, stays = asyncio.create_task(places.enter()), asyncio.create_task(places.enter())
    await waiting(places, 2)
    places.leave()
    gone.cancel()
    await asyncio.wait({gone})
    await stays
    places.leave()
    assert (places.in_flight, places.waiting) == (0, 0)


async def test_a_full_queue_refuses_at_once() -> None:
    places = admission(length=0)
    await places.enter()
    with pytest.raises(UpstreamBusy, match="1 requests are in flight, and the queue is full"):
        await places.enter()


async def test_a_wait_in_vain_ends_and_leaves_nothing_behind() -> None:
    places = admission(timeout_s=0.01)
    await places.enter()
    with pytest.raises(UpstreamBusy, match="none was done within"):
        await places.enter()
    places.leave()
    assert (places.in_flight, places.waiting) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "cancel"]), st.integers(0, 9))))
def test_never_more_than_allowed_and_nothing_is_lost(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        places = admission(max_in_flight=2, length=3)
        inside: list[asyncio.Task[None]] = []
        for step, pick in steps:
            if step == "enter":
                inside.append(asyncio.create_task(places.enter()))
            elif inside:
                task = inside.pop(pick % len(inside))
                if step == "cancel":
                    task.cancel()
                await asyncio.sleep(0)
                if task.done() and not task.cancelled() and task.exception() is None:
                    places.leave()
                else:
                    task.cancel()
                    await asyncio.wait({task})
            await asyncio.sleep(0)
            assert places.in_flight <= 2
            assert places.waiting <= 3
        for task in inside:
            task.cancel()
        results = await asyncio.gather(*inside, return_exceptions=True)
        for result in results:
            if result is None:
                places.leave()
        assert (places.in_flight, places.waiting) == (0, 0)

    asyncio.run(play())
