"""The engines of several workers: one process for each upstream with an engine, run by the parent.

With `local` and `local_ask` the only modules of the proxy that know the engine.
"""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.errors import EngineError
from engine.process.relay import Relay
from proxy.errors import ConfigError
from proxy.settings.config import Config
from proxy.settings.engine import Engine
from proxy.upstreams.local.config import engine_config

log = logging.getLogger("rejoinder.engines")


class _Running(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    engine: Engine
    relay: Relay
    socket: str


class Engines:
    """Relays, by upstream. Workers find them by the paths of their sockets."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for the sockets; nobody else may look into it."""
        self._folder = folder
        self._numbers = itertools.count()
        self._running: dict[str, _Running] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def start(self, config: Config) -> dict[str, str]:
        """Start what `config` needs and return at once, while models load. The sockets."""
        for name, engine in _engines(config).items():
            self._running[name] = await self._start(engine)
        return self.sockets()

    async def adopt(self, config: Config) -> dict[str, str]:
        """Start what is new or changed, wait for it, and return the sockets. What is not needed
        any more ends when its last worker has let it go. Raises ConfigError, with nothing changed.
        """
        wanted = _engines(config)
        fresh: dict[str, _Running] = {}
        for name, engine in wanted.items():
            if name in self._running and self._running[name].engine == engine:
                continue
            fresh[name] = await self._start(engine)
            try:
                await fresh[name].relay.ready()
            except EngineError as error:
                for one in fresh.values():
                    await one.relay.close()
                raise ConfigError([f"upstreams.{name}: {error}"]) from error
        before, self._running = (
            self._running,
            {name: fresh.get(name) or self._running[name] for name in wanted},
        )
        for name, one in before.items():
            if self._running.get(name) is not one:
                self._end_when_unused(one)
        return self.sockets()

    def sockets(self) -> dict[str, str]:
        """By upstream."""
        return {name: one.socket for name, one in self._running.items()}

    async def close(self) -> None:
        """End them all."""
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        for one in self._running.values():
            await one.relay.close()

    async def _start(self, engine: Engine) -> _Running:
        path = self._folder / f"engine-{next(self._numbers)}.sock"
        relay = Relay(engine_config(engine), path)
        await relay.start()
        return _Running(engine=engine, relay=relay, socket=str(path))

    def _end_when_unused(self, one: _Running) -> None:
        task = asyncio.create_task(_end(one.relay))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


async def _end(relay: Relay) -> None:
    try:
        await relay.unused()
    finally:
        await relay.close()


def _engines(config: Config) -> Mapping[str, Engine]:
    return {
        name: upstream.engine
        for name, upstream in config.upstreams.items()
        if upstream.engine is not None
    }
