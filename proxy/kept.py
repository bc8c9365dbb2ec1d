"""What upstreams keep of prompts, the pages of engines: purged with the answers, and shown."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

import msgspec
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from index.entry import Snapshot
from index.purges import tags_of
from index.store import Purge, Purged, Store
from proxy.errors import UpstreamTimeout
from proxy.upstreams.base import EngineProfile, PagePurge, PrefixTree, Upstream

_PATIENCE_S = 2.0
"""An engine answers between two steps."""
PURGE_PATIENCE_S = 30.0
"""A step may be long, and who purges wants to know that it is done."""

Figures = Mapping[str, Mapping[str, int]]
"""By upstream, by name."""


class Kept(Collector):
    """Asks the upstreams of the site in force. As a collector it shows what was heard last."""

    def __init__(self, upstreams: Callable[[], Mapping[str, Upstream]], *, store: Store) -> None:
        self._upstreams = upstreams
        self._store = store
        self._figures: Figures = {}

    async def purge(self, asked: Purge, done: Purged) -> int:
        """After the store's own: the number of pages dropped, or covered. Raises StoreFault, and
        UpstreamTimeout where an engine does not say in time that it is done."""
        snapshot = await self._store.snapshot()
        purge = PagePurge(
            tags=tags_of(asked),
            everything=asked.everything,
            dry_run=asked.dry_run,
            snapshot=Snapshot(generation=snapshot.generation, sequence=done.sequence),
        )
        dropped = (_in_time(name, one.purge(purge)) for name, one in self._upstreams().items())
        return sum(await asyncio.gather(*dropped))

    async def figures(self) -> Figures:
        """Of the upstreams that have any, now."""
        upstreams = dict(self._upstreams())
        asking = (asyncio.wait_for(one.figures(), _PATIENCE_S) for one in upstreams.values())
        heard = await asyncio.gather(*asking, return_exceptions=True)
        return {
            name: figures
            for name, figures in zip(upstreams, heard, strict=True)
            if isinstance(figures, Mapping) and figures
        }

    async def hear(self) -> None:
        """Ask for the figures that are shown from now on."""
        self._figures = await self.figures()

    async def profile(
        self, name: str | None, *, num_steps: int, longest_s: float
    ) -> EngineProfile | None:
        """Of the engine at this upstream, or of the only one. None: there is no such engine, or
        several. Raises UpstreamUnreachable."""
        engine = self._engine(name)
        if engine is None:
            return None
        return await engine.profile(num_steps=num_steps, longest_s=longest_s)

    async def prefix_tree(self, name: str | None, *, max_nodes: int) -> PrefixTree | None:
        """Of the same engines. Raises UpstreamUnreachable."""
        engine = self._engine(name)
        return None if engine is None else await engine.prefix_tree(max_nodes=max_nodes)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for family in _FAMILIES:
            shown = GaugeMetricFamily(family.name, family.help, labels=("upstream", "kind"))
            for upstream, figures in self._figures.items():
                for kind, figure in family.figures.items():
                    shown.add_metric((upstream, kind), figures.get(figure, 0))
            yield shown

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: without it the registry would collect once at the registration."""
        return iter(())

    def _engine(self, name: str | None) -> Upstream | None:
        """That of this name, or the only one."""
        engines = [
            one
            for known, one in self._upstreams().items()
            if one.has_engine and name in (None, known)
        ]
        return engines[0] if len(engines) == 1 else None


async def _in_time(name: str, purging: Awaitable[int]) -> int:
    try:
        return await asyncio.wait_for(purging, PURGE_PATIENCE_S)
    except TimeoutError:
        message = (
            f"The engine of upstream {name} did not say within {PURGE_PATIENCE_S:g} s that its"
            " pages are purged; the answers are. Ask for it again."
        )
        raise UpstreamTimeout(message, upstream=name, phase="total") from None


class _Family(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    help: str
    figures: Mapping[str, str]
    """By the label of its kind."""


_FAMILIES = (
    _Family(
        name="rejoinder_engine_pages",
        help="Pages of an engine's KV cache; `free` counts those that may be taken from the prefix"
        " cache.",
        figures={
            "all": "num_pages", "free": "free_pages", "cached": "cached_pages",
            "pinned": "pinned_pages", "disk": "disk_pages", "swapped": "swapped_pages",
        },
    ),
    _Family(
        name="rejoinder_engine_sequences",
        help="Sequences in an engine's batch, and those that wait for it.",
        figures={"running": "running", "waiting": "waiting"},
    ),
    _Family(
        name="rejoinder_engine_prompt_tokens",
        help="Tokens of the prompts that an engine began with since its start; `cached` is the part"
        " that its prefix cache had, `restored` was brought from disk for that.",
        figures={"all": "prompt_tokens", "cached": "cached_tokens", "restored": "restored_tokens"},
    ),
    _Family(
        name="rejoinder_engine_generated_tokens",
        help="Tokens that an engine generated since its start, also of answers that were broken"
        " off.",
        figures={"all": "generated_tokens"},
    ),
    _Family(
        name="rejoinder_engine_preemptions",
        help="Times that a sequence had to make room since an engine's start; `swapped` are those"
        " whose pages were copied instead of computed again.",
        figures={"all": "preemptions", "swapped": "swaps"},
    ),
    _Family(
        name="rejoinder_engine_steps",
        help="Steps of an engine since its start.",
        figures={"all": "steps"},
    ),
    _Family(
        name="rejoinder_engine_restarts",
        help="Times that an engine's process died and was started again.",
        figures={"all": "restarts"},
    ),
)  # fmt: skip
