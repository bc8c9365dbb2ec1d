"""The life of a process that serves: its listeners, from the first connection to the last."""

import asyncio
import logging
import signal
import ssl
from collections.abc import Mapping, Sequence

import msgspec

from proxy.app import Proxy
from proxy.errors import ConfigError
from proxy.processes.protocol import Patience
from proxy.processes.server import (
    CannotListen,
    Listening,
    Server,
    bind,
    load_certificate,
    tls_context,
)
from proxy.settings.address import parse_address
from proxy.settings.config import Config
from proxy.settings.file import Loaded
from proxy.settings.listeners import Tls

log = logging.getLogger("rejoinder")

_LAST_WORDS_S = 1.0
"""After the deadline: how long broken-off answers have to say so."""
_ADMIN_GRACE_S = 1.0


class Stop:
    """When to begin the end, and how."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.in_a_hurry = False
        """No grace time: nobody is to be taken out of a rotation."""

    def __call__(self, number: signal.Signals) -> None:
        """Stop as a signal says; Ctrl-C comes from a person who waits."""
        self.in_a_hurry = number == signal.SIGINT
        self.asked.set()


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The bound sockets of a proxy."""

    data: Sequence[Listening]
    admin: Listening


class Certificates:
    """The TLS contexts of both ports; a renewed certificate is put into the same context."""

    def __init__(self, config: Config) -> None:
        """Raises CannotListen."""
        self.data = None if config.tls is None else tls_context(config.tls)
        self.admin = None if config.admin.tls is None else tls_context(config.admin.tls)

    def renew(self, config: Config) -> None:
        """Read the files again. Raises CannotListen; connections then see the old ones."""
        _renew(self.data, config.tls)
        _renew(self.admin, config.admin.tls)


def open_ports(config: Config) -> Ports:
    """Bind what the config names. Raises CannotListen."""
    return Ports(
        data=[bind(parse_address(text)) for text in config.addresses],
        admin=bind(parse_address(config.admin.listen)),
    )


async def bring_into_force(
    proxy: Proxy,
    certificates: Certificates,
    loaded: Loaded,
    *,
    engines: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """What a reload does in a process that serves. Returns warnings. Raises ConfigError."""
    try:
        certificates.renew(loaded.config)
    except CannotListen as error:
        raise ConfigError([str(error)]) from None
    change = await proxy.adopt(loaded.config, engines=engines)
    return change.ignored


async def serve(proxy: Proxy, ports: Ports, certificates: Certificates, *, stop: Stop) -> None:
    """Serve until `stop`, then see the requests in flight to their end (`shutdown` in the config).

    signal            grace                        deadline
    | readyz: 503     | no new connections         | what is left ends with an error
    """
    max_header_bytes = int(proxy.config.limits.headers)

    def patience() -> Patience:
        limits = proxy.config.limits
        return Patience(head_s=limits.head_timeout, body_s=limits.body_timeout)

    data = Server(
        [one.socket for one in ports.data],
        proxy.data,
        tls=certificates.data,
        max_header_bytes=max_header_bytes,
        patience=patience,
    )
    admin = Server(
        [ports.admin.socket],
        proxy.admin,
        tls=certificates.admin,
        max_header_bytes=max_header_bytes,
        patience=patience,
    )
    serving = asyncio.create_task(data.run())
    administering = asyncio.create_task(admin.run())
    stopped = asyncio.create_task(stop.asked.wait())
    try:
        await asyncio.wait({serving, administering, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await _drain(proxy, data, serving, in_a_hurry=stop.in_a_hurry)
    finally:
        stopped.cancel()
        admin.stop()
        await _end(admin, administering, within_s=_ADMIN_GRACE_S)


async def _drain(
    proxy: Proxy, data: Server, serving: asyncio.Task[None], *, in_a_hurry: bool
) -> None:
    shutdown = proxy.config.shutdown
    grace_s = 0.0 if in_a_hurry else shutdown.grace
    log.info("stopping; %d requests in flight", proxy.in_flight())
    proxy.drain()
    await asyncio.wait({serving}, timeout=grace_s)
    data.stop()
    await asyncio.wait({serving}, timeout=shutdown.deadline - grace_s)
    if not serving.done():
        log.warning("the deadline has come; answers under way are broken off")
        proxy.break_off()
    await _end(data, serving, within_s=_LAST_WORDS_S)


async def _end(server: Server, running: asyncio.Task[None], *, within_s: float) -> None:
    await asyncio.wait({running}, timeout=within_s)
    if not running.done():
        server.cut()
    await running


def _renew(context: ssl.SSLContext | None, tls: Tls | None) -> None:
    # Whether there is TLS at all does not change (`proxy.processes.reload`).
    if context is not None and tls is not None:
        load_certificate(context, tls)
