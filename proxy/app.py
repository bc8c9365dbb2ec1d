"""Wiring: from a config to a running proxy. The only place that knows all the rooms."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop
from litestar import Litestar, asgi
from litestar.di import Provide
from litestar.types import Receive, Scope, Send

from index.errors import EmbedderFault, StoreUnusable
from index.memory import MemoryStore
from index.semantic import Semantic
from index.sqlite import SqliteStore
from index.store import Store
from index.verdict import rules_for
from index.volatility import volatile
from proxy import chores
from proxy.admin import Office, admin_app
from proxy.cache import Cache
from proxy.dataport import DataPort, Site
from proxy.deciding import Decider
from proxy.flights import Flights, Listener
from proxy.forwarding import Forwarder
from proxy.gate import Gate
from proxy.health import Health, healthz, readyz
from proxy.keeping import Keeper
from proxy.metrics import Metrics
from proxy.passthrough import Passthrough
from proxy.pipeline import Pipeline
from proxy.receiving import Receiver
from proxy.request.headers import pseudonym
from proxy.routing import Router
from proxy.server import CannotListen, bind, quiet_uvicorn, stop_on_signals
from proxy.server import serve as listen_and_serve
from proxy.settings import config as written
from proxy.settings.address import parse_address
from proxy.tenants import ANONYMOUS, Tenants
from proxy.upstreams.base import Upstream
from proxy.upstreams.fallback import Sender
from proxy.upstreams.remote import RemoteUpstream
from proxy.upstreams.transport import make_transport

log = logging.getLogger("rejoinder")

Say = Callable[[str], None]
"""Told of the steps of a start, for the person who waits."""


class Proxy:
    """One proxy: its parts, its background work, and its two ASGI applications."""

    def __init__(self, config: written.Config, *, store: Store, say: Say) -> None:
        self._config = config
        self._store = store
        self._say = say
        self._metrics = Metrics()
        self._flights = Flights()
        self._cache = Cache(store, metrics=self._metrics, clock=time.time)
        self._upstreams = {
            name: _upstream(name, one, say=say) for name, one in config.upstreams.items()
        }
        self._router = Router(config, self._upstreams)
        self._health = Health(tuple(self._upstreams.values()))
        self._background: set[asyncio.Task[None]] = set()
        self._keeper, site = self._site(store.secret)
        self.data = _data_app(DataPort(site, metrics=self._metrics), self._health)
        self.admin = admin_app(self._office(), _gate(config.admin))

    def start(self, *, when_ready: Callable[[], None]) -> None:
        """Begin what runs beside the requests. Models load; requests are served meanwhile."""
        self._run(self._load(when_ready))
        self._run(chores.sweep(self._store, clock=time.time, metrics=self._metrics))

    def drain(self) -> None:
        """Say `not ready`: the end is near."""
        self._health.draining = True

    async def close(self) -> None:
        """Stop everything, in the order in which the parts need each other."""
        await self._flights.close(grace_s=0)
        await self._keeper.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for upstream in self._upstreams.values():
            await upstream.close()
        await self._cache.close()
        await self._store.close()

    def _site(self, secret: bytes) -> tuple[Keeper, Site]:
        config, router, via = self._config, self._router, pseudonym(secret)
        decider = Decider(
            router,
            config.policies,
            secret=secret,
            volatile=volatile,
            rules_of=lambda tier: rules_for(tier.profile, threshold=tier.threshold),
        )
        keeper = Keeper(cache=self._cache, decider=decider, metrics=self._metrics, clock=time.time)
        sender = Sender()
        forwarder = Forwarder(flights=self._flights, sender=sender, keeper=keeper, via=via)
        site = Site(
            receiver=Receiver(Tenants(config.tenants), config.limits, via=via, clock=time.time),
            router=router,
            pipeline=Pipeline(decider=decider, cache=self._cache, forwarder=forwarder),
            passthrough=Passthrough(router, via=via),
        )
        return keeper, site

    def _office(self) -> Office:
        return Office(
            config=self._config,
            store=self._store,
            health=self._health,
            metrics=self._metrics,
            clock=time.time,
            stats=self._stats,
        )

    async def _stats(self) -> dict[str, Any]:
        semantic = self._cache.semantic.stats()
        return {
            "store": await self._store.stats(),
            "semantic": semantic,
            "in_flight": self.in_flight(),
            "waiting": len(self.listeners()),
            "requests": self._metrics.by_outcome(),
        }

    def in_flight(self) -> int:
        """Upstream requests under way for cached surfaces."""
        return len(self._flights)

    def listeners(self) -> tuple[Listener, ...]:
        """The clients that wait for them."""
        return self._flights.listeners()

    @property
    def models(self) -> tuple[str, ...]:
        """Ids that a first request can name."""
        return tuple(model.id for model in self._router.models(tenant=ANONYMOUS))

    async def _load(self, when_ready: Callable[[], None]) -> None:
        """Load the models side by side. What fails to load is said, and the rest goes on."""
        loading: list[Coroutine[Any, Any, None]] = [self._load_embedder()]
        loading += [one.start() for one in self._upstreams.values()]
        for result in await asyncio.gather(*loading, return_exceptions=True):
            if isinstance(result, BaseException):
                log.error("a part did not start: %s", result)
                self._say(f"a part did not start: {result}")
        self._health.loaded = True
        when_ready()

    async def _load_embedder(self) -> None:
        embedder = self._config.embedder
        if embedder is None:
            return
        # Imported where it is needed: numpy, faiss and onnxruntime come with it.
        from index.embedder import load_embedder
        from index.semantic import SemanticIndex

        self._say(f"embedder: loading {embedder.model}")
        self._health.embedder = "loading"
        try:
            loaded = await asyncio.to_thread(
                load_embedder, embedder.model, threads=embedder.threads
            )
        except EmbedderFault as fault:
            # Without it requests are answered by the exact tier and the upstreams.
            self._health.embedder = str(fault)
            raise
        semantic: Semantic = SemanticIndex(loaded)
        self._cache.semantic = semantic
        self._health.embedder = "ready"
        self._say("embedder: ready")
        self._run(chores.follow(self._store, semantic, metrics=self._metrics))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def open_store(config: written.Store) -> Store:
    """The store of a config. Raises StoreUnusable."""
    if config.path is None:
        return MemoryStore(max_bytes=config.memory)
    path = Path(config.path)
    return await SqliteStore.open(path, memory_bytes=config.memory, disk_bytes=config.disk)


def serve(config: written.Config, *, say: Say) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code; what cannot start is said in one line."""
    return uvloop.run(_serve(config, say=say))


async def _serve(config: written.Config, *, say: Say) -> int:
    quiet_uvicorn()
    stop = asyncio.Event()
    try:
        data = bind(parse_address(config.listen))
        admin = bind(parse_address(config.admin.listen))
        store = await open_store(config.store)
    except (CannotListen, StoreUnusable) as error:
        say(f"error: {error}")
        return 1
    proxy = Proxy(config, store=store, say=say)
    stop_on_signals(stop)
    try:
        proxy.start(when_ready=lambda: say(_welcome(data.url, admin.url, proxy.models)))
        serving = (
            listen_and_serve(data, proxy.data, stop=stop, grace_s=config.drain),
            listen_and_serve(admin, proxy.admin, stop=stop, grace_s=1),
        )
        await asyncio.gather(*serving)
    finally:
        await proxy.close()
    return 0


def _upstream(name: str, config: written.Upstream, *, say: Say) -> Upstream:
    if config.engine is not None:
        # Imported where it is needed, so that a proxy without an engine stays light.
        from proxy.upstreams.local import LocalUpstream

        return LocalUpstream(name, config.engine, on_progress=say)
    return RemoteUpstream(name, config, transport=make_transport(config))


def _welcome(data_url: str, admin_url: str, models: tuple[str, ...]) -> str:
    """What a new user needs next."""
    model = models[0] if models else "MODEL"
    question = '[{"role": "user", "content": "Why is the sky blue?"}]'
    return f"""
Rejoinder answers on {data_url}/v1 (admin: {admin_url}). Try it:

  from openai import OpenAI
  chat = OpenAI(base_url="{data_url}/v1", api_key="any").chat.completions
  print(chat.create(model="{model}", messages={question}, temperature=0, max_tokens=48)\
.choices[0].message.content)
"""


def _data_app(port: DataPort, health: Health) -> Litestar:
    @asgi(["/v1", "/"], is_mount=True, copy_scope=False)
    async def data(scope: Scope, receive: Receive, send: Send) -> None:
        await port(scope, receive, send)  # type: ignore[arg-type]  # litestar's types are narrower

    return Litestar(
        [data, healthz, readyz],
        dependencies={"health": Provide(lambda: health, sync_to_thread=False)},
        openapi_config=None,
        logging_config=None,
    )


def _gate(admin: written.Admin) -> Gate:
    return Gate(token=admin.token, hosts=frozenset(admin.hosts))
