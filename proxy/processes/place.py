"""A place among the workers, which one process after the other takes."""

import asyncio
import contextlib
import logging
import socket
import subprocess
import time
from collections.abc import Awaitable
from typing import Protocol

from proxy.errors import ConfigError
from proxy.processes.control import (
    Adopt,
    Answer,
    Begin,
    Channel,
    Finish,
    Gone,
    Question,
    Refused,
    open_channel,
)

log = logging.getLogger("rejoinder.supervisor")

_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 30.0
_HEALTHY_S = 60.0
"""A worker that lived so long has earned a quick restart."""


class Parent(Protocol):
    """What a place needs of who supervises it."""

    stopping: asyncio.Event
    """The end of all workers has begun."""

    def spawn(self, index: int, descriptor: int) -> subprocess.Popen[bytes]:
        """Start the process, with its end of the control channel."""
        ...

    def beginning(self, index: int) -> Begin:
        """What it is told first: the config in force."""
        ...

    def reply(self, question: Question) -> Awaitable[Answer]:
        """Answers a worker."""
        ...


class Place:
    """Keeps one worker running."""

    def __init__(self, index: int, parent: Parent) -> None:
        self._index = index
        self._parent = parent
        self._process: subprocess.Popen[bytes] | None = None
        self.channel: Channel | None = None
        """To the worker that serves now."""

    async def keep(self) -> None:
        """Start the process, and start it again whenever it dies. Returns when it ended as it was
        told to. Raises ConfigError when the very first one cannot begin."""
        pause_s = _FIRST_PAUSE_S
        began = False
        while not self._parent.stopping.is_set():
            born = time.monotonic()
            why = await self._live_once()
            if why is not None and not began:
                raise why
            if why is not None:
                log.error("worker %d cannot begin: %s", self._index, why)
            began = True
            if self._parent.stopping.is_set():
                return
            if time.monotonic() - born > _HEALTHY_S:
                pause_s = _FIRST_PAUSE_S
            log.warning("worker %d died; starting it again in %.2f s", self._index, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._parent.stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def kill(self) -> None:
        """At once. A no-op when it has ended."""
        if self._process is not None:
            self._process.kill()

    async def _live_once(self) -> ConfigError | None:
        """Returns why it could not begin."""
        try:
            await self._live()
        except ConfigError as error:
            return error
        except Exception as error:  # a worker that cannot start must not end the others
            # As where the machine has no memory or no descriptor left: it may have some later.
            log.exception("worker %d cannot be run", self._index)
            return ConfigError([f"worker {self._index}: {error}"])
        return None

    async def _live(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = self._process = self._parent.spawn(self._index, theirs.fileno())
            descriptor = ours.detach()
        try:
            name = f"worker {self._index} (process {process.pid})"
            await self._attend(await open_channel(descriptor, reply=self._parent.reply, name=name))
        finally:
            if not self._parent.stopping.is_set():
                process.kill()
            await asyncio.to_thread(process.wait)

    async def _attend(self, channel: Channel) -> None:
        running = asyncio.create_task(channel.run())
        try:
            await self._begin(channel)
            self.channel = channel
            if self._parent.stopping.is_set():
                channel.tell(Finish(in_a_hurry=True))
            await running
        except Gone:
            pass
        finally:
            self.channel = None
            running.cancel()

    async def _begin(self, channel: Channel) -> None:
        told = self._parent.beginning(self._index)
        answer = await channel.ask(told)
        while (now := self._parent.beginning(self._index)) != told and not _refused(answer):
            # A reload came in between, which did not reach this worker.
            told = now
            answer = await channel.ask(Adopt(text=now.text, engines=now.engines))
        if isinstance(answer, Refused):
            raise ConfigError(list(answer.problems))


def _refused(answer: Answer) -> bool:
    return isinstance(answer, Refused)
