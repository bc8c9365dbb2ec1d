"""Listening: sockets, TLS, uvicorn, signals."""

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import uvicorn

from proxy.port.asgi import Application
from proxy.processes.protocol import BoundedProtocol, Patience
from proxy.settings.address import Address, Tcp, Unix
from proxy.settings.listeners import Tls

_BACKLOG = 2048
_HEAD_BYTES_OVER_LIMIT = 64 * 2**10
"""What a request line may take beside the headers' own limit."""
_SWEEP_S = 1.0
"""How exactly the times are kept that a client may take."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """A bound socket and where it can be reached: the port is the real one, also for port 0."""

    socket: socket.socket
    address: Address

    def url(self, *, tls: bool) -> str:
        """For a person to paste."""
        scheme = "https" if tls else "http"
        return f"{scheme}://{self.address}" if isinstance(self.address, Tcp) else str(self.address)

    def forget(self) -> None:
        """Remove the file of a Unix socket. A no-op for TCP and when it is gone."""
        if isinstance(self.address, Unix):
            Path(self.address.path).unlink(missing_ok=True)


class CannotListen(Exception):
    """The address is taken or not ours, or the certificate cannot be used; the message says why."""


class Server:
    """One application on one or several sockets."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        application: Application,
        *,
        tls: ssl.SSLContext | None,
        max_header_bytes: int,
        patience: Callable[[], Patience],
    ) -> None:
        """`patience` is asked again and again: a reload may change it."""
        config = uvicorn.Config(
            application,
            loop="none",
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=75,
            h11_max_incomplete_event_size=max_header_bytes + _HEAD_BYTES_OVER_LIMIT,
        )
        config.load()
        config.ssl = tls
        self._uvicorn = _Uvicorn(config)
        self._sockets = list(sockets)
        self._patience = patience

    async def run(self) -> None:
        """Returns after `stop`, when the last answer is out."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            await self._uvicorn.serve(sockets=self._sockets)
        finally:
            sweeping.cancel()

    def stop(self) -> None:
        """No new connections, and no second request on those that are open."""
        self._uvicorn.should_exit = True

    def cut(self) -> None:
        """Do not wait for answers that are under way; `stop` came before."""
        for task in self._uvicorn.server_state.tasks:
            task.cancel()
        for connection in self._uvicorn.server_state.connections:
            connection.transport.abort()
        self._uvicorn.force_exit = True

    async def _sweep(self) -> None:
        """One look at all connections costs less than a timer for each request."""
        while True:
            patience = self._patience()
            await asyncio.sleep(min(_SWEEP_S, patience.head_s, patience.body_s))
            now_s = time.monotonic()
            for connection in list(self._uvicorn.server_state.connections):
                assert isinstance(connection, BoundedProtocol)
                connection.sweep(now_s, patience)


def bind(address: Address) -> Listening:
    """Bind a socket. Raises CannotListen."""
    try:
        if isinstance(address, Unix):
            return Listening(socket=_bind_unix(address.path), address=address)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        # asyncio turns Nagle's algorithm off only where the protocol is said.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `[::]` does not take IPv4 as well: each address is listened on by its own name.
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address.host, address.port))
    except OSError as error:
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = " (does another Rejoinder run? stop it, or change `listen`)"
        raise CannotListen(f"cannot listen on {address}: {error.strerror}{hint}") from error
    return Listening(socket=bound, address=Tcp(host=address.host, port=bound.getsockname()[1]))


def tls_context(tls: Tls) -> ssl.SSLContext:
    """A server's context. Raises CannotListen."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, tls)
    return context


def load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    """Connections from now on see this certificate; others are not touched.

    Raises CannotListen, and then the context is as it was.
    """
    try:
        # Tried apart: a certificate that does not fit its key would stay half loaded.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            tls.cert, tls.key, password=_no_passphrase
        )
        context.load_cert_chain(tls.cert, tls.key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(f"the certificate {tls.cert} cannot be used: {reason}") from error


def on_signals(stop: Callable[[signal.Signals], None]) -> None:
    """`stop` is called for the first SIGTERM or SIGINT; the second ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping = (signal.SIGTERM, signal.SIGINT)

    def first(number: signal.Signals) -> None:
        for one in stopping:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)
        stop(number)

    for number in stopping:
        loop.add_signal_handler(number, first, number)


class _Uvicorn(uvicorn.Server):
    """Leaves signals to `on_signals`: two servers share one process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _BrokenStreams(logging.Filter):
    """A stream whose upstream died is cut off on purpose and logged (`proxy.port.dataport`)."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "without completing response" not in record.getMessage()


def quiet_uvicorn() -> None:
    """Its own lines say nothing that ours do not."""
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.WARNING)
    logger.addFilter(_BrokenStreams())


def _no_passphrase() -> str:
    """Asked for where a key has one; without this, OpenSSL would ask at the terminal."""
    raise ValueError("its key needs a passphrase")


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
