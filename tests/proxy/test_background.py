"""What runs beside the requests, and its end."""

import asyncio

from proxy.processes.background import Background


async def test_a_work_that_fails_says_so_and_the_others_go_on(caplog):
    background, ended = Background(), asyncio.Event()

    async def fails() -> None:
        raise OSError(28, "No space left on device")

    async def lasts() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    background.begin(fails())
    background.begin(lasts())
    while not caplog.records:
        await asyncio.sleep(0)
    assert "No space left on device" in caplog.text
    assert not ended.is_set()
    await background.close()
    assert ended.is_set()
    assert len(caplog.records) == 1, "one that was cancelled has not failed"
