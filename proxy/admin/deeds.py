"""The audit log: what was done on the admin port, by whom, with what result."""

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from litestar import Request

from proxy.errors import ClientError
from proxy.journal.backwards import lines_backwards
from proxy.observing.lines import is_torn
from proxy.processes.reload import ReloadReport
from proxy.settings.config import Config

log = logging.getLogger("rejoinder.audit")

T = TypeVar("T")

MAX_REMEMBERED = 1000
_SUFFIX = ".audit.jsonl"
_NOBODY = "a local socket"


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """One line."""

    at: float
    """Unix seconds."""
    what: str
    """`purge`, `erase`, `feedback`, `reload`."""
    who: str
    """The address that asked, and whether it had the token; of a reload, else its cause."""
    ok: bool
    asked: Any
    result: Any


class Deeds:
    """Appends to a file, where there is one, and remembers the last ones in any case."""

    def __init__(self, config: Callable[[], Config]) -> None:
        """`config`: the one in force."""
        self._config = config
        self._last: deque[Deed] = deque(maxlen=MAX_REMEMBERED)

    async def write(self, deed: Deed) -> None:
        """On the disk as this returns. What cannot be written is logged; the deed stands."""
        await asyncio.to_thread(self.write_now, deed)

    def write_now(self, deed: Deed) -> None:
        """The same, at once."""
        self._last.append(deed)
        log.info("%s by %s: %s", deed.what, deed.who, deed.result)
        path = _path_of(self._config())
        if path is None:
            return
        try:
            _append(path, msgspec.json.encode(deed) + b"\n")
        except OSError as error:
            log.error("the audit log %s cannot be written: %s", path, error)

    async def latest(
        self, limit: int, *, what: str | None = None, before: float | None = None
    ) -> tuple[Deed, ...]:
        """Newest first, of all processes that write to the file. `before`: Unix seconds."""
        return await asyncio.to_thread(self._latest, limit, what, before)

    def who(self, request: Request[Any, Any, Any]) -> str:
        """See `Deed.who`."""
        address = _NOBODY if request.client is None else request.client.host or _NOBODY
        return f"{address} with the token" if self._config().admin.token else address

    def _latest(self, limit: int, what: str | None, before: float | None) -> tuple[Deed, ...]:
        path = _path_of(self._config())
        newest = reversed(self._last) if path is None else _backwards(path)
        wanted = (
            deed
            for deed in newest
            if what in (None, deed.what) and (before is None or deed.at < before)
        )
        return tuple(islice(wanted, limit))


def note_reload(config: Config, cause: str, report: ReloadReport) -> None:
    """Of a reload that nobody asked for on the admin port. Blocks for a moment."""
    told = msgspec.to_builtins(report)
    deed = Deed(at=report.at, what="reload", who=cause, ok=report.ok, asked=None, result=told)
    Deeds(lambda: config).write_now(deed)


async def audited(
    deeds: Deeds, request: Request[Any, Any, Any], what: str, asked: Any, doing: Awaitable[T]
) -> T:
    """Do it, and write down that it was done, or that it failed."""
    try:
        result = await doing
    except Exception as error:  # every failure is written down, then raised on
        said = {"error": error.message if isinstance(error, ClientError) else str(error)}
        await deeds.write(_deed(deeds.who(request), what, asked, said, ok=False))
        raise
    told = msgspec.to_builtins(result)
    went_well = bool(told.get("ok", True)) if isinstance(told, dict) else True
    await deeds.write(_deed(deeds.who(request), what, asked, told, ok=went_well))
    return result


def _deed(who: str, what: str, asked: Any, result: Any, *, ok: bool) -> Deed:
    told = msgspec.to_builtins(asked)
    return Deed(at=time.time(), what=what, who=who, ok=ok, asked=told, result=result)


def _path_of(config: Config) -> Path | None:
    path = config.admin.audit_log
    if path is None and config.store.path is not None:
        path = config.store.path + _SUFFIX
    return None if path is None else Path(path)


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        begin = b"\n" if is_torn(str(path)) else b""
        os.write(descriptor, begin + line)  # one write: lines of several processes stay whole
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _backwards(path: Path) -> Iterator[Deed]:
    for line in lines_backwards(path):
        # Half a line, of a full disk, is none.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield _DECODER.decode(line)


_DECODER = msgspec.json.Decoder(Deed)
