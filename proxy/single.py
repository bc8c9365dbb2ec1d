"""`rejoinder serve` with one worker: everything in this process."""

import time
from pathlib import Path

import uvloop

from index.errors import StoreUnusable
from proxy.app import Proxy, Say, open_store
from proxy.errors import ConfigError
from proxy.lifetime import Certificates, Ports, Stop, serve
from proxy.reloader import Reloader
from proxy.server import CannotListen, bind, on_signals, quiet_uvicorn
from proxy.settings.address import parse_address
from proxy.settings.config import Config
from proxy.settings.file import Loaded
from proxy.welcome import welcome


def run(path: Path, text: str, config: Config, *, say: Say) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code; what cannot start is said in one line."""
    return uvloop.run(_run(path, text, config, say=say))


def open_ports(config: Config) -> Ports:
    """Bind what the config names. Raises CannotListen."""
    return Ports(
        data=[bind(parse_address(text)) for text in config.addresses],
        admin=bind(parse_address(config.admin.listen)),
    )


async def bring_into_force(
    proxy: Proxy, certificates: Certificates, loaded: Loaded
) -> tuple[str, ...]:
    """What a reload does in a process that serves. Returns warnings. Raises ConfigError."""
    try:
        certificates.renew(loaded.config)
    except CannotListen as error:
        raise ConfigError([str(error)]) from None
    change = await proxy.adopt(loaded.config)
    return change.ignored


async def _run(path: Path, text: str, config: Config, *, say: Say) -> int:
    quiet_uvicorn()
    stop = Stop()
    try:
        certificates = Certificates(config)
        ports = open_ports(config)
        store = await open_store(config.store)
    except (CannotListen, StoreUnusable) as error:
        say(f"error: {error}")
        return 1
    proxy = Proxy(config, store=store, say=say)
    on_signals(stop)
    reloader = Reloader(
        path,
        text,
        apply=lambda _, loaded: bring_into_force(proxy, certificates, loaded),
        clock=time.time,
    )
    proxy.reload_by(reloader.reload, last=lambda: reloader.last)
    try:
        proxy.run_beside(reloader.follow())
        proxy.start(when_ready=lambda: say(welcome(config, ports, proxy.models)))
        await serve(proxy, ports, certificates, stop=stop)
    finally:
        for listening in (*ports.data, ports.admin):
            listening.forget()
        await proxy.close()
    return 0
