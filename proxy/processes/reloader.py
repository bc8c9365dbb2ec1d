"""When the config is read again: on SIGHUP, when its file changes, and when the admin port says so.

A config that does not work changes nothing; what is wrong with it is logged and reported.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from proxy.errors import ConfigError
from proxy.processes.control import Stuck, Unanswered
from proxy.processes.reload import Refusal, ReloadReport
from proxy.settings.file import Loaded, parse, text_of

log = logging.getLogger("rejoinder.reload")

_LOOK_EVERY_S = 1.0
"""Reading a small file costs less than to be told of changes: a folder can only be watched whole,
and a store that lies beside the config changes with every answer."""
_SETTLED_AFTER_S = 0.05
"""A file that has stayed the same for so long is taken for written."""

Apply = Callable[[str, Loaded], Awaitable[tuple[str, ...]]]
"""Bring a config (its text, and what was read from it) into force; returns warnings. Raises
ConfigError or Unanswered, and then the config before it is still in force."""


class Reloader:
    """Reads one config file again and again, one time after the other."""

    def __init__(
        self,
        path: Path,
        text: str,
        *,
        apply: Apply,
        clock: Callable[[], float],
        report: Callable[[ReloadReport], None] = lambda _: None,
        unasked: Callable[[str, ReloadReport], None] = lambda _cause, _report: None,
    ) -> None:
        """`text` is what the process was started with. `report` is told how each reload went;
        `unasked` also the cause of those that the admin port did not ask for."""
        self._path = path
        self._seen = text
        self._apply = apply
        self._clock = clock
        self._report = report
        self._unasked = unasked
        self._turn = asyncio.Lock()
        self.last: ReloadReport | None = None

    async def reload(self) -> ReloadReport:
        """Read the file and bring it into force, if it works."""
        async with self._turn:
            self.last = await self._reload()
        self._report(self.last)
        if self.last.ok:
            log.info("config reloaded")
        for line in self.last.problems:
            log.error("config not reloaded: %s", line)
        for line in self.last.warnings:
            log.warning("config reloaded, but: %s", line)
        return self.last

    async def follow(self) -> None:
        """Reload on SIGHUP, and whenever the file's content has changed. Runs until cancelled."""
        hung_up = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
        await asyncio.gather(self._obey(hung_up), self._watch())

    async def _obey(self, hung_up: asyncio.Event) -> None:
        while True:
            await hung_up.wait()
            hung_up.clear()
            self._unasked("SIGHUP", await self.reload())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if await self._has_changed():
                self._unasked("a change of the file", await self.reload())

    async def _has_changed(self) -> bool:
        """Whether there is another text than the one that was read last, written to its end."""
        try:
            text = await asyncio.to_thread(text_of, self._path)
            if text == self._seen:
                return False
            await asyncio.sleep(_SETTLED_AFTER_S)
            return text == await asyncio.to_thread(text_of, self._path)
        except ConfigError:
            return False  # on its way from one place to another

    async def _reload(self) -> ReloadReport:
        before = self._seen
        try:
            self._seen = await asyncio.to_thread(text_of, self._path)
            loaded = await asyncio.to_thread(parse, self._path, self._seen, environ=os.environ)
            ignored = await self._apply(self._seen, loaded)
        except ConfigError as error:
            return self._refused("invalid_config", *error.problems)
        except Unanswered as error:
            self._seen = before  # so that it is tried again
            code: Refusal = "worker_stuck" if isinstance(error, Stuck) else "reload_failed"
            return self._refused(code, f"{error}: the config before stays in force")
        except Exception as error:  # what a reload meets must not end the watching
            log.exception("a reload failed")
            return self._refused("reload_failed", f"it failed: {type(error).__name__}: {error}")
        return ReloadReport(at=self._clock(), ok=True, warnings=(*loaded.warnings, *ignored))

    def _refused(self, code: Refusal, *problems: str) -> ReloadReport:
        return ReloadReport(at=self._clock(), ok=False, problems=problems, code=code)
