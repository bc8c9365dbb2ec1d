"""How much is kept and how much is under way, as gauges."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from index.errors import StoreFault
from index.nearest.vectorplace import SemanticStats
from index.store import Store, StoreStats

_UNDERWAY = {
    "rejoinder_flights": "Upstream requests under way for cached surfaces.",
    "rejoinder_waiting_clients": "Clients that wait for them, or read their streams.",
    "rejoinder_held_bytes": "What is held in memory of the answers under way.",
}


class Sizes(Collector):
    """Asks the store before the metrics are shown; as a collector it shows what was heard last.

    What all processes share (the store's entries and purges) the first of them shows for all.
    """

    def __init__(
        self,
        store: Store,
        *,
        semantic: Callable[[], SemanticStats],
        embedder: Callable[[], str],
        underway: Callable[[], Mapping[str, int]],
        shows_shared: bool,
    ) -> None:
        """`underway`: by the names of `_UNDERWAY`. `embedder`: its state, as `/readyz` has it."""
        self._store = store
        self._semantic = semantic
        self._embedder = embedder
        self._underway = underway
        self._shows_shared = shows_shared
        self._stats: StoreStats | None = None

    async def ask(self) -> None:
        """Learn the store's sizes. A store that fails shows none."""
        try:
            self._stats = await self._store.stats()
        except StoreFault:
            self._stats = None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._underway().items():
            yield _gauge(name, _UNDERWAY[name], value)
        semantic = self._semantic()
        text = "Answers that can be found by meaning, in the vector index of a process."
        yield _gauge("rejoinder_semantic_entries", text, semantic.entries)
        text = "Contexts whose answers lie beside each other in the vector index of a process."
        yield _gauge("rejoinder_semantic_scopes", text, semantic.scopes)
        embedder = self._embedder()
        if embedder != "none":
            text = "Whether prompts can be embedded now; 0: answers are found by their words only."
            yield _gauge("rejoinder_embedder_up", text, float(embedder == "ready"))
        if self._stats is not None:
            text = "What the memory tier of a process holds, as its bound counts it."
            yield _gauge("rejoinder_store_memory_bytes", text, self._stats.memory_bytes)
            if self._shows_shared:
                yield from _shared(self._stats)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: without it the registry would collect once at the registration."""
        return iter(())


def _shared(stats: StoreStats) -> Iterator[GaugeMetricFamily]:
    text = "Answers in the store, swept or not."
    yield _gauge("rejoinder_store_entries", text, stats.entries)
    text = "What the store takes on disk, or in Redis."
    yield _gauge("rejoinder_store_disk_bytes", text, stats.disk_bytes)
    yield _gauge("rejoinder_store_purges", "Number of the store's last purge.", stats.sequence)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
