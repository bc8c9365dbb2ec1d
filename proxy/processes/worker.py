"""One of several workers: `python -m proxy.processes.worker DESCRIPTOR NUMBER`.

It serves on sockets that it inherits, and does what its parent says over the control channel. When
the channel closes the parent is gone, and so is the worker: nobody could stop it any more.
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import uvloop
from prometheus_client import values

from index.errors import StoreUnusable
from proxy.app import Member, Proxy
from proxy.errors import ConfigError
from proxy.processes import collector
from proxy.processes.control import (
    Adopt,
    Adopted,
    Answer,
    Begin,
    Channel,
    Done,
    Finish,
    Greet,
    Loaded,
    Question,
    Refused,
    Reload,
    Reloaded,
    Remember,
    Said,
    ToAll,
    open_channel,
)
from proxy.processes.lifetime import Certificates, Ports, Stop, bring_into_force, serve
from proxy.processes.reload import ReloadReport
from proxy.processes.server import CannotListen, Listening, quiet_uvicorn
from proxy.processes.siblings import Siblings
from proxy.settings.address import parse_address
from proxy.settings.file import parse
from proxy.storing import open_store
from proxy.tenancy.meters import SharedMeters


class Worker:
    """Answers the parent's questions, and asks it on behalf of the admin port."""

    def __init__(self) -> None:
        self._stop = Stop()
        self._serving: asyncio.Task[None] | None = None
        self._proxy: Proxy | None = None
        self._certificates: Certificates | None = None
        self._path = Path()
        self._reloaded: ReloadReport | None = None
        self._adopting = asyncio.Lock()
        self._channel: Channel | None = None
        self._ended = asyncio.Event()

    async def run(self, channel: Channel) -> None:
        """Returns when the parent has closed the channel, or told to finish and all is done."""
        self._channel = channel
        listening = asyncio.create_task(channel.run())
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait({listening, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not self._ended.is_set():
            os._exit(1)  # requests in flight cannot be answered for by anybody
        listening.cancel()
        if self._serving is not None:
            await self._serving

    async def reply(self, question: Question) -> Answer:
        """To the parent."""
        if isinstance(question, ToAll):
            assert self._proxy is not None
            return await question.own(self._proxy.process)
        match question:
            case Begin():
                return await self._begin(question)
            case Greet():
                return Done()
            case Adopt():
                return await self._adopt(question)
            case Remember(report=report):
                self._reloaded = report
                return Done()
            case Finish(in_a_hurry=in_a_hurry):
                self._stop(signal.SIGINT if in_a_hurry else signal.SIGTERM)
                return Done()
            case Said() | Loaded() | Reload():
                raise AssertionError(f"not for a parent to ask: {question}")

    async def _begin(self, begin: Begin) -> Answer:
        self._path, self._reloaded = Path(begin.path), begin.reloaded
        try:
            config = parse(self._path, begin.text, environ=os.environ).config
            self._certificates = Certificates(config)
            store = await open_store(config.store)
        except ConfigError as error:
            return Refused(problems=tuple(error.problems))
        except (CannotListen, StoreUnusable) as error:
            return Refused(problems=(str(error),))
        member = Member(
            index=begin.index,
            metrics=begin.metrics,
            meters=SharedMeters(Path(begin.metrics) / "meters"),
            engines=begin.engines,
        )
        # All workers load the same: one of them tells of it.
        say = self._say if begin.index == 0 else _silent
        proxy = self._proxy = Proxy(config, store=store, say=say, member=member)
        proxy.reload_by(self._ask_reload, last=lambda: self._reloaded)
        assert self._channel is not None
        proxy.peers = Siblings(self._channel)
        ports = Ports(data=[_inherited(*one) for one in begin.data], admin=_inherited(*begin.admin))
        self._serving = asyncio.create_task(self._serve(proxy, ports, self._certificates))
        return Done()

    async def _serve(self, proxy: Proxy, ports: Ports, certificates: Certificates) -> None:
        def ready() -> None:
            collector.settle()
            self._tell(Loaded(models=proxy.models))

        try:
            proxy.start(when_ready=ready)
            await serve(proxy, ports, certificates, stop=self._stop)
        finally:
            await proxy.close()
            self._ended.set()

    async def _adopt(self, adopt: Adopt) -> Answer:
        assert self._proxy is not None
        assert self._certificates is not None
        try:
            loaded = parse(self._path, adopt.text, environ=os.environ)
            # One after the other, as they came: the parent may not have waited for the last one.
            async with self._adopting:
                ignored = await bring_into_force(
                    self._proxy, self._certificates, loaded, engines=adopt.engines
                )
        except ConfigError as error:
            return Refused(problems=tuple(error.problems))
        return Adopted(ignored=ignored)

    def _say(self, line: str) -> None:
        self._tell(Said(line=line))

    def _tell(self, question: Question) -> None:
        assert self._channel is not None
        self._channel.tell(question)

    async def _ask_reload(self) -> ReloadReport:
        assert self._channel is not None
        answer = await self._channel.ask(Reload())
        assert isinstance(answer, Reloaded), answer
        return answer.report


def main(descriptor: int, index: int) -> None:
    """Runs until the parent says to finish, or is gone."""
    _count_as(index)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent's to hear, which then tells us
    uvloop.run(_main(descriptor))


async def _main(descriptor: int) -> None:
    quiet_uvicorn()
    worker = Worker()
    await worker.run(await open_channel(descriptor, reply=worker.reply, name="the parent"))


def _inherited(descriptor: int, address: str) -> Listening:
    return Listening(socket=socket.socket(fileno=descriptor), address=parse_address(address))


def _silent(_: str) -> None:
    """Another worker says it."""


def _count_as(index: int) -> None:
    """Counters go to files by the worker's number, not by its process id, so that one that is
    started again goes on with its own (the library's way for servers whose workers have names)."""
    numbered = values.MultiProcessValue(lambda: index)  # type: ignore[no-untyped-call]  # untyped
    values.ValueClass = numbered


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
