"""A place among the workers whose process cannot be had, or does not stay."""

import asyncio
import errno
import subprocess

import pytest

from proxy.errors import ConfigError
from proxy.processes.control import Begin
from proxy.processes.place import Place

DEADLINE_S = 60


class Parent:
    """Its workers end at once, if they can be started at all."""

    def __init__(self, *, fails=None):
        self.stopping = asyncio.Event()
        self.num_spawned = 0
        self._fails = fails

    def spawn(self, index, descriptor):
        if self._fails is not None:
            raise self._fails
        self.num_spawned += 1
        return subprocess.Popen(["true"])

    def beginning(self, index):
        return Begin(
            path="", text="", data=(), admin=(0, ""), index=index, metrics="", engines={},
            reloaded=None,
        )  # fmt: skip

    async def reply(self, question):
        raise AssertionError(f"nobody asks {question}")


async def test_a_first_worker_that_cannot_be_started_ends_the_start_with_its_reason():
    parent = Parent(fails=OSError(errno.ENOMEM, "Cannot allocate memory"))
    with pytest.raises(ConfigError, match=r"worker 3: .*Cannot allocate memory"):
        await Place(3, parent).keep()


async def test_no_worker_is_started_again_once_the_end_has_begun(monkeypatch, caplog):
    monkeypatch.setattr("proxy.processes.place._FIRST_PAUSE_S", DEADLINE_S)
    parent = Parent()
    async with asyncio.timeout(DEADLINE_S):
        keeping = asyncio.create_task(Place(0, parent).keep())
        while "starting it again" not in caplog.text:
            await asyncio.sleep(0.01)
        parent.stopping.set()
        await keeping
    assert parent.num_spawned == 1
