"""The semantic tier's life: an embedder is loaded, its index follows the store, and where a server
turns out to have another model, another embedder takes its place, with an index of its own."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from index.errors import EmbedderFault
from index.semantic import NoSemantic, SemanticIndex
from index.store import Store
from index.volatility.examples import NothingLearned
from proxy import chores
from proxy.health import Health
from proxy.lookup.cache import Cache
from proxy.observing.metrics import Metrics
from proxy.settings.embedder import Embedder as Settings

if TYPE_CHECKING:
    from index.embedders.embedder import Embedder

log = logging.getLogger("rejoinder.embedder")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An embedder that works. `outdated`: set when another one has to be opened in its place."""

    embedder: "Embedder"
    outdated: asyncio.Event


class Embedding:
    """Brings the embedder of a config into a cache. Nothing of it ever fails a request."""

    def __init__(
        self,
        settings: Settings,
        *,
        cache: Cache,
        store: Store,
        metrics: Metrics,
        health: Health,
        prepare: Callable[[str], Awaitable[None]],
    ) -> None:
        """`prepare` is told the identity of an embedder before it is used."""
        self._settings = settings
        self._cache = cache
        self._store = store
        self._metrics = metrics
        self._health = health
        self._prepare = prepare

    async def start(self, beside: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Returns when the embedder is in use; the rest goes on `beside`, until cancelled.

        Raises EmbedderFault when there is none; a server is asked again behind the caller's back.
        """
        self._health.embedder = "loading"
        try:
            opened = await open_embedder(self._settings)
        except Exception as fault:  # whatever it is: it does not load any more
            self._health.embedder = str(fault) or type(fault).__name__
            if self._settings.base_url is not None:
                beside(self._open_and_follow())
            raise
        beside(self._follow(opened, await self._install(opened)))

    async def _open_and_follow(self) -> None:
        opened = await self._open_at_last()
        await self._follow(opened, await self._install(opened))

    async def _open_at_last(self) -> Opened:
        pause_s = _FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            try:
                return await open_embedder(self._settings)
            except EmbedderFault as fault:
                self._health.embedder = str(fault)

    async def _install(self, opened: Opened) -> SemanticIndex:
        from index.volatility.learned import LearnedVolatility

        embedder = opened.embedder
        vectors = self._store.vectors(identity=embedder.identity, dimension=embedder.dimension)
        semantic = SemanticIndex(embedder, vectors)
        await self._prepare(semantic.identity)
        self._cache.semantic = semantic
        self._cache.learned = learned = LearnedVolatility(opened.embedder)
        self._health.classifier = "ready" if learned.has_classifier else "none"
        self._health.embedder = "ready"
        return semantic

    async def _follow(self, opened: Opened, semantic: SemanticIndex) -> None:
        """In step with the store, embedder after embedder."""
        while True:
            following = asyncio.ensure_future(self._keep_in_step(semantic))
            try:
                await opened.outdated.wait()
            finally:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
            self._cache.semantic, self._cache.learned = NoSemantic(), NothingLearned()
            self._health.embedder, self._health.classifier = "loading", "none"
            await semantic.close()
            opened = await self._open_at_last()
            semantic = await self._install(opened)

    async def _keep_in_step(self, semantic: SemanticIndex) -> None:
        if semantic.vectors.follows:
            await chores.follow(self._store, semantic, metrics=self._metrics)


async def open_embedder(settings: Settings) -> Opened:
    """Load the model, or ask the server. Raises EmbedderFault."""
    if settings.base_url is not None:
        return await _open_remote(settings)
    # Imported where it is needed: onnxruntime comes with it.
    from index.embedders.embedder import load_embedder

    embedder = await asyncio.to_thread(
        load_embedder,
        settings.model,
        threads=settings.threads,
        prefix=settings.prefix,
        scripts=_scripts(settings),
    )
    return Opened(embedder=embedder, outdated=asyncio.Event())


async def _open_remote(settings: Settings) -> Opened:
    # Imported where they are needed: numpy comes with them.
    from index.embedders.cachefolder import default_cache
    from index.embedders.embedding_wire import Model
    from index.embedders.remote_embedder import RemoteEmbedder
    from index.embedders.scripts import LATIN
    from proxy.lookup.embeddings_server import EmbeddingServer

    scripts = _scripts(settings) or LATIN
    server = EmbeddingServer(settings)
    try:
        embedder = await RemoteEmbedder.open(
            server,
            Model(
                name=settings.model,
                dimensions=settings.dimensions,
                prefix=settings.prefix or "",
            ),
            cache=default_cache(),
            scripts=None if scripts == "any" else scripts,
            max_bytes=settings.max_bytes,
        )
    except BaseException:
        await server.close()
        raise
    return Opened(embedder=embedder, outdated=embedder.outdated)


def _scripts(settings: Settings) -> frozenset[str] | Literal["any"] | None:
    """As `index.embedders.embedder.load_embedder` takes them."""
    if settings.scripts is None or isinstance(settings.scripts, str):
        return settings.scripts
    return frozenset(script.upper() for script in settings.scripts)
