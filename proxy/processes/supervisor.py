"""`rejoinder serve` with several workers: the parent, which answers no request itself.

    parent ── binds the sockets, reads the config, hears signals
      ├── engines, one for each upstream with one; every worker speaks to it
      ├── worker 0 ── serves on the inherited sockets
      └── worker N ── …

A worker that dies is started again. It gets the config that is in force, not what the file says by
then.
"""

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from index.errors import StoreUnusable
from proxy.admin.deeds import note_reload
from proxy.app import Say
from proxy.errors import ConfigError
from proxy.processes.control import (
    Adopt,
    Answer,
    Begin,
    Channel,
    Done,
    Failed,
    Finish,
    Greet,
    Loaded,
    Question,
    Refused,
    Reload,
    Reloaded,
    Remember,
    Said,
    Silent,
    Stuck,
    ToAll,
    Unanswered,
    ask_each,
)
from proxy.processes.gathering import PATIENCE_S, Part
from proxy.processes.lifetime import Certificates, Ports, Stop, open_ports
from proxy.processes.place import Place
from proxy.processes.reload import ReloadReport, change_to, reloaded_by
from proxy.processes.reloader import Reloader
from proxy.processes.server import CannotListen, on_signals
from proxy.processes.welcome import welcome
from proxy.settings import file
from proxy.settings.config import Config
from proxy.storing import open_store
from proxy.upstreams.local.shared import Engines

log = logging.getLogger("rejoinder.supervisor")

_ADOPT_S = 30.0
"""Reading a config and wiring its rooms takes a moment; a worker that takes longer is stuck."""
_END_PATIENCE_S = 10.0
"""After the deadline of `shutdown`: then a worker that still runs is killed."""


class Force(msgspec.Struct, frozen=True, kw_only=True):
    """What is in force. A reload replaces it whole."""

    text: str
    config: Config
    engines: dict[str, str]


class Supervisor:
    """The workers, their engines, and the config in force."""

    def __init__(
        self, path: Path, force: Force, *, ports: Ports, engines: Engines, folder: Path, say: Say
    ) -> None:
        """`folder`: for the workers' counters."""
        self._path = path
        self._force = force
        self._ports = ports
        self._engines = engines
        self._folder = folder
        self._say = say
        self._num_loaded = 0
        self.stopping = asyncio.Event()
        self._places = [Place(index, self) for index in range(force.config.workers)]
        self._reloader = Reloader(
            path,
            force.text,
            apply=self._apply,
            clock=time.time,
            report=self._remember,
            unasked=self._unasked,
        )

    async def run(self, stop: Stop) -> None:
        """Until `stop`, and then the end of every worker. Raises ConfigError when one of them
        cannot begin."""
        stopped = asyncio.create_task(stop.asked.wait())
        following = asyncio.create_task(self._reloader.follow())
        keeping = [asyncio.create_task(place.keep()) for place in self._places]
        try:
            await asyncio.wait({stopped, *keeping}, return_when=asyncio.FIRST_COMPLETED)
            self._finish(in_a_hurry=stop.in_a_hurry or not stopped.done())
            following.cancel()
            patience_s = self._force.config.shutdown.deadline + _END_PATIENCE_S
            await asyncio.wait(keeping, timeout=patience_s)
        finally:
            for place in self._places:
                place.kill()
            stopped.cancel()
            results = await asyncio.gather(*keeping, following, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    def spawn(self, index: int, descriptor: int) -> subprocess.Popen[bytes]:
        """Start a worker's process."""
        passed = [one.socket.fileno() for one in (*self._ports.data, self._ports.admin)]
        # A session of its own: Ctrl-C in a terminal is for the parent, which tells the workers.
        # -P: a folder named `proxy` where the user stands is not ours.
        return subprocess.Popen(  # noqa: S603  # nothing of it comes from outside
            [sys.executable, "-P", "-m", "proxy.processes.worker", str(descriptor), str(index)],
            pass_fds=(descriptor, *passed),
            stdin=subprocess.DEVNULL,
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(self._folder)},
            start_new_session=True,
        )

    def beginning(self, index: int) -> Begin:
        """What a worker is told first."""
        force = self._force
        return Begin(
            path=str(self._path),
            text=force.text,
            data=tuple((one.socket.fileno(), str(one.address)) for one in self._ports.data),
            admin=(self._ports.admin.socket.fileno(), str(self._ports.admin.address)),
            index=index,
            metrics=str(self._folder),
            engines=force.engines,
            reloaded=self._reloader.last,
        )

    async def reply(self, question: Question) -> Answer:
        """To a worker."""
        if isinstance(question, ToAll):
            return await self._ask_all(question)
        match question:
            case Said(line=line):
                self._say(line)
            case Loaded(models=models):
                self._num_loaded += 1
                if self._num_loaded == len(self._places):
                    self._say(welcome(self._force.config, self._ports, models))
            case Reload():
                return Reloaded(report=await self._reloader.reload())
            case Begin() | Greet() | Adopt() | Remember() | Finish():
                raise AssertionError(f"not for a worker to ask: {question}")
        return Done()

    def _channels(self) -> list[Channel]:
        return [place.channel for place in self._places if place.channel is not None]

    def _finish(self, *, in_a_hurry: bool) -> None:
        self.stopping.set()
        for channel in self._channels():
            channel.tell(Finish(in_a_hurry=in_a_hurry))

    async def _apply(self, text: str, loaded: file.Loaded) -> tuple[str, ...]:
        """In every worker, or in none. Raises Unanswered where one is stuck."""
        # Before anything is brought into force: who does not answer could not take it back.
        _check(await ask_each(self._channels(), Greet(), within_s=PATIENCE_S))
        before = self._force
        change = change_to(loaded.config, now=before.config)
        engines = await self._engines.adopt(change.config)
        self._force = Force(text=text, config=change.config, engines=engines)
        try:
            _check(await self._adopt(self._force))
        except (ConfigError, Unanswered):
            engines = await self._engines.adopt(before.config)
            self._force = msgspec.structs.replace(before, engines=engines)
            await self._adopt(self._force)
            raise
        return change.ignored

    async def _adopt(self, force: Force) -> list[Answer | Silent]:
        """Tell all workers."""
        question = Adopt(text=force.text, engines=force.engines)
        return await ask_each(self._channels(), question, within_s=_ADOPT_S)

    def _unasked(self, cause: str, report: ReloadReport) -> None:
        note_reload(self._force.config, cause, report)
        if report.ok:
            self._say(reloaded_by(cause))

    def _remember(self, report: ReloadReport) -> None:
        for channel in self._channels():
            channel.tell(Remember(report=report))

    async def _ask_all(self, question: ToAll) -> Answer:
        answers = await ask_each(self._channels(), question, within_s=PATIENCE_S)
        parts: list[Any] = [answer for answer in answers if isinstance(answer, Part)]
        num_missing = len(answers) - len(parts)
        return msgspec.structs.replace(question.join(parts), num_missing=num_missing)


def _check(answers: list[Answer | Silent]) -> None:
    """Raises ConfigError with what workers say against a config, once each, Stuck where some say
    nothing, and Unanswered where some failed."""
    refused = [
        line for answer in answers if isinstance(answer, Refused) for line in answer.problems
    ]
    if refused:
        raise ConfigError(list(dict.fromkeys(refused)))
    silent = [answer.problem for answer in answers if isinstance(answer, Silent)]
    if silent:
        raise Stuck("; ".join(silent))
    failed = [answer.problem for answer in answers if isinstance(answer, Failed)]
    if failed:
        raise Unanswered("; ".join(failed))


def run(path: Path, text: str, config: Config, *, say: Say) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code; what cannot start is said in one line."""
    return uvloop.run(_run(path, text, config, say=say))


async def _run(path: Path, text: str, config: Config, *, say: Say) -> int:
    stop = Stop()
    try:
        Certificates(config)
        ports = open_ports(config)
        # Made and migrated by one process, before many open it.
        await (await open_store(config.store)).close()
    except (CannotListen, StoreUnusable) as error:
        say(f"error: {error}")
        return 1
    on_signals(stop)
    with tempfile.TemporaryDirectory(prefix="rejoinder-") as name:
        folder = Path(name)
        engines = Engines(folder)
        try:
            force = Force(text=text, config=config, engines=await engines.start(config))
            supervisor = Supervisor(
                path, force, ports=ports, engines=engines, folder=folder, say=say
            )
            await supervisor.run(stop)
        except ConfigError as error:
            say(f"error: {error}")
            return 1
        finally:
            for listening in (*ports.data, ports.admin):
                listening.forget()
            await engines.close()
    return 0
