"""Listening: sockets, uvicorn, signals."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from proxy.settings.address import Address, Tcp, Unix

_BACKLOG = 2048

Application = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
"""ASGI; each library has types of its own for it."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """A bound socket and where it can be reached: the port is the real one, also for port 0."""

    socket: socket.socket
    address: Address

    @property
    def url(self) -> str:
        """For a person to paste."""
        return f"http://{self.address}" if isinstance(self.address, Tcp) else str(self.address)


class CannotListen(Exception):
    """The address is taken or not ours; the message says which and why."""


def bind(address: Address) -> Listening:
    """Bind a socket. Raises CannotListen."""
    try:
        if isinstance(address, Unix):
            return Listening(socket=_bind_unix(address.path), address=address)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.host, address.port))
    except OSError as error:
        raise CannotListen(f"cannot listen on {address}: {error.strerror}") from error
    return Listening(socket=bound, address=Tcp(host=address.host, port=bound.getsockname()[1]))


async def serve(
    listening: Listening, application: Application, *, stop: asyncio.Event, grace_s: float
) -> None:
    """Serve until `stop`; then what is in flight has `grace_s` seconds to end."""
    config = uvicorn.Config(
        application,
        loop="none",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=max(1, int(grace_s)),
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listening.socket]))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and SIGINT set `stop`; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        stop.set()
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)


class _Server(uvicorn.Server):
    """Leaves signals to `stop_on_signals`: two servers share one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _BrokenStreams(logging.Filter):
    """A stream whose upstream died is cut off on purpose (`proxy.dataport`) and logged there."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()


def quiet_uvicorn() -> None:
    """Its own lines say nothing that ours do not."""
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.WARNING)
    logger.addFilter(_BrokenStreams())


def _bind_unix(path: str) -> socket.socket:
    # A socket file that nobody listens on was left behind by a crash.
    with contextlib.suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(path)
    return bound
