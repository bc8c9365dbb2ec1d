"""`rejoinder serve` with one worker: everything in this process."""

import time
from pathlib import Path

import uvloop

from index.errors import StoreUnusable
from proxy.admin.deeds import note_reload
from proxy.app import Proxy, Say
from proxy.processes import collector
from proxy.processes.lifetime import Certificates, Stop, bring_into_force, open_ports, serve
from proxy.processes.reload import ReloadReport, reloaded_by
from proxy.processes.reloader import Reloader
from proxy.processes.server import CannotListen, on_signals, quiet_uvicorn
from proxy.processes.welcome import welcome
from proxy.settings.config import Config
from proxy.storing import open_store


def run(path: Path, text: str, config: Config, *, say: Say) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code; what cannot start is said in one line."""
    return uvloop.run(_run(path, text, config, say=say))


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

    def unasked(cause: str, report: ReloadReport) -> None:
        note_reload(proxy.config, cause, report)
        if report.ok:
            say(reloaded_by(cause))

    reloader = Reloader(
        path,
        text,
        apply=lambda _, loaded: bring_into_force(proxy, certificates, loaded),
        clock=time.time,
        unasked=unasked,
    )
    proxy.reload_by(reloader.reload, last=lambda: reloader.last)

    def ready() -> None:
        collector.settle()
        say(welcome(config, ports, proxy.models))

    try:
        proxy.beside.begin(reloader.follow())
        proxy.start(when_ready=ready)
        await serve(proxy, ports, certificates, stop=stop)
    finally:
        for listening in (*ports.data, ports.admin):
            listening.forget()
        await proxy.close()
    return 0
