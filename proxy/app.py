"""Wiring: from a config to a running proxy. The only place that knows all the rooms."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

import msgspec

from index.entry import Snapshot
from index.errors import StoreFault
from index.store import Store
from proxy import chores
from proxy.admin.app import admin_app
from proxy.admin.deeds import Deeds
from proxy.admin.gate import gate_of
from proxy.admin.office import Office
from proxy.auditing.audits import Audits
from proxy.dashboard import history
from proxy.dashboard.sample import Sample, sample_of
from proxy.health import Health
from proxy.journal.records import Records
from proxy.kept import Kept
from proxy.lookup.cache import Cache
from proxy.lookup.embedding import Embedding
from proxy.misses.flight import Listener
from proxy.observing.desk import Desk
from proxy.observing.metrics import Metrics
from proxy.observing.sizes import Sizes
from proxy.port.dataport import DataPort, data_app
from proxy.processes.background import Background
from proxy.processes.counts import HELD_BYTES, Counts, servers_of, total_of
from proxy.processes.gathering import Count, Process
from proxy.processes.peers import Alone, Peers
from proxy.processes.reload import Change, ReloadReport, change_to
from proxy.settings import config as written
from proxy.site import Shared, Site, make_site
from proxy.tenancy.meters import Meters, OwnMeters
from proxy.tenancy.tenants import ANONYMOUS
from proxy.transfer.counter import Transfer
from proxy.transfer.pairs import Pair
from proxy.transfer.tally import Fate
from proxy.upstreams.base import Upstream
from proxy.upstreams.making import close_all, make_pools, make_upstream, start_all

log = logging.getLogger("rejoinder")

Say = Callable[[str], None]
"""Told of the steps of a start, for the person who waits."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Which process of a proxy this is, and what it has in common with the others."""

    index: int = 0
    metrics: str | None = None
    """Folder of all counters; see `proxy.observing.metrics`."""
    meters: Meters = msgspec.field(default_factory=OwnMeters)
    """Of the tenants' limits, which are of all workers together."""
    engines: Mapping[str, str] = {}
    """Sockets of the engines that the parent runs, by upstream."""


class Proxy:
    """One proxy: its parts, its background work, and its two ASGI applications."""

    def __init__(
        self, config: written.Config, *, store: Store, say: Say, member: Member | None = None
    ) -> None:
        """`member`: None where this is the only process."""
        member = member or Member()
        self._store = store
        self._say = say
        self._member = member
        self._metrics = Metrics(folder=member.metrics)
        self._desk = Desk(config, metrics=self._metrics)
        self.audits = Audits(store, metrics=self._metrics)
        self._cache = Cache(store, metrics=self._metrics, clock=time.time, tiers=self.audits.ledger)
        self._shared = Shared(
            cache=self._cache,
            store=store,
            metrics=self._metrics,
            secret=store.secret,
            leases=store.leases,
            meters=member.meters,
            audits=self.audits,
            spending=self._desk.spending,
            clock=time.time,
        )
        upstreams = self._make_upstreams(config, config.upstreams)
        self._site = make_site(
            config, upstreams, make_pools(config.upstreams, upstreams), self._shared
        )
        self._retiring: set[Site] = set()
        self._metrics.watch(lambda: self._site.sender.states())
        self._kept = Kept(lambda: self._site.upstreams, store=store)
        self._metrics.show(self._kept)
        self._metrics.show(self.audits)
        self._sizes = Sizes(
            store,
            semantic=lambda: self._cache.semantic.stats(),
            embedder=lambda: self.health.embedder_state(),
            underway=self._underway,
            shows_shared=member.index == 0,
        )
        self._metrics.show(self._sizes)
        self.beside = Background()  # until the proxy is closed
        self.health = Health(
            lambda: self._site.upstreams.values(), away=lambda: self._cache.semantic.away
        )
        self._reload: Callable[[], Awaitable[ReloadReport]] = _nothing_to_reload
        self._history = history.history_in(member.metrics)
        self.records = Records(config, lost=self._metrics.record_lines_lost.inc, drop=self._forget)
        self.process = Process(
            index=member.index,
            counts=self.counts,
            reports=self.audits.reports,
            records=self.records,
            clock=time.time,
        )
        self.peers: Peers = Alone(self.process)
        self._port = DataPort(
            self._site,
            begin=self._desk.begin,
            watchers=(self._desk.note, self.records.note),  # the records take it over
        )
        self.data = data_app(self._port, self.health)
        self.admin = admin_app(self._office(), lambda: gate_of(self.config.admin))

    @property
    def config(self) -> written.Config:
        """The one in force."""
        return self._site.config

    def start(self, *, when_ready: Callable[[], None]) -> None:
        """Begin what runs beside the requests. Models load; requests are served meanwhile."""
        self.beside.begin(self._load(when_ready))
        self.beside.begin(chores.sweep(self._store, clock=time.time, metrics=self._metrics))
        self.beside.begin(self.audits.ledger.follow())
        self.beside.begin(self._desk.follow())
        if self._member.index == 0:  # of all processes, one writes it down
            self.beside.begin(history.keep(self._history, self._sample, clock=time.time))

    async def adopt(
        self, config: written.Config, *, engines: Mapping[str, str] | None = None
    ) -> Change:
        """Bring another config into force, without dropping a request. One at a time.

        Returns when new requests get it. Upstreams that are new are started before; raises
        ConfigError when one of them cannot, and then nothing has changed.
        """
        old = self._site
        self._member = msgspec.structs.replace(self._member, engines=engines or {})
        change = change_to(config, now=old.config)
        kept = {name: old.upstreams[name] for name in change.kept}
        fresh = self._make_upstreams(change.config, set(change.config.upstreams) - change.kept)
        await start_all(fresh)
        pools = {name: old.sender.pools[name] for name in change.kept}
        pools |= make_pools(change.config.upstreams, fresh)
        await self.audits.ledger.prepare(change.config.policies, embedder=self._cache.embedder)
        self._site = make_site(change.config, {**kept, **fresh}, pools, self._shared)
        self._port.site = self._site
        await self._desk.adopt(change.config)
        await self.records.adopt(change.config)
        self._retiring.add(old)
        dropped = [one for name, one in old.upstreams.items() if name not in change.kept]
        self.beside.begin(self._retire(old, dropped))
        return change

    def reload_by(
        self,
        reload: Callable[[], Awaitable[ReloadReport]],
        *,
        last: Callable[[], ReloadReport | None],
    ) -> None:
        """Set what `POST /reload` does, and what is told of the last reload."""
        self._reload = reload
        self.health.reloaded = last

    async def counts(self) -> Counts:
        """What this process has in hand."""
        if self._member.index == 0:  # workers share their engines: one of them tells of those
            await self._kept.hear()
        await self._sizes.ask()
        self._desk.flush()
        return Counts(
            worker=self._member.index,
            in_flight=self.in_flight(),
            waiting=len(self.listeners()),
            gauges=self._metrics.gauges(),
        )

    def drain(self) -> None:
        """Say `not ready`: the end is near."""
        self._say("stopping; a second signal ends at once")
        self.health.draining = True

    def break_off(self) -> None:
        """Answers under way end with an error."""
        for site in self._sites():
            site.break_off()

    async def close(self) -> None:
        """Stop everything, in the order in which the parts need each other."""
        sites = self._sites()
        for site in sites:
            await site.auditor.close()
            await site.flights.close(grace_s=0)
            await site.keeper.close()
        await self.beside.close()
        for site in sites:
            await close_all(site.upstreams.values())
        await self._cache.close()
        await self._store.close()
        await self._desk.close()
        await self.records.close()

    def _office(self) -> Office:
        return Office(
            config=lambda: self.config,
            store=self._store,
            health=self.health,
            metrics=self._metrics,
            kept=self._kept,
            clock=time.time,
            stats=self._stats,
            peers=lambda: self.peers,
            asking=lambda: self._site.asking,
            records=self.records,
            deeds=Deeds(lambda: self.config),
            reload=lambda: self._reload(),
            transfer=Transfer(store=self._store, clock=time.time, keep=self._keep_pair),
            history=self._history,
        )

    async def _keep_pair(self, pair: Pair, start: Snapshot) -> Fate:
        site = self._site
        with site.guests:
            return await site.pairs.keep(pair, start=start)

    async def _stats(self) -> dict[str, Any]:
        counts = (await self.peers.ask(Count())).counts
        so_far = await self._sample(time.time())
        return {
            "store": await self._store.stats(),
            "semantic": self._cache.semantic.stats(),
            "policies": self.audits.figures(),
            "workers": len(counts),
            "in_flight": sum(one.in_flight for one in counts),
            "waiting": sum(one.waiting for one in counts),
            "held_bytes": int(total_of(counts, HELD_BYTES)),
            "requests": so_far.requests,
            "hit_rate": so_far.hit_rate,
            "saved": so_far.saved,
            "upstreams": servers_of(counts),
            "engines": await self._kept.figures(),
            "reload": self.health.reloaded(),
        }

    async def _sample(self, at: float) -> Sample:
        return await self._metrics.read(lambda: sample_of(self._metrics.totals(), at=at))

    def _forget(self) -> None:
        for site in self._sites():
            site.forget()
        self._cache.semantic.forget()

    def _underway(self) -> dict[str, int]:
        return {
            "rejoinder_flights": self.in_flight(),
            "rejoinder_waiting_clients": len(self.listeners()),
            HELD_BYTES: self.held_bytes(),
        }

    def in_flight(self) -> int:
        """Upstream requests under way for cached surfaces."""
        return sum(len(site.flights) for site in self._sites())

    def held_bytes(self) -> int:
        """What is kept of the streams under way."""
        return sum(site.flights.held_bytes() for site in self._sites())

    def listeners(self) -> tuple[Listener, ...]:
        """The clients that wait for them."""
        return tuple(one for site in self._sites() for one in site.flights.listeners())

    def _sites(self) -> tuple[Site, ...]:
        return (self._site, *self._retiring)

    @property
    def models(self) -> tuple[str, ...]:
        """Ids that a first request can name."""
        return tuple(model.id for model in self._site.router.models(tenant=ANONYMOUS))

    def _make_upstreams(self, config: written.Config, names: Iterable[str]) -> dict[str, Upstream]:
        return {
            name: make_upstream(
                name,
                config.upstreams[name],
                engine=self._member.engines.get(name),
                say=self._say,
                look=self._look,
            )
            for name in names
        }

    async def _look(self) -> Snapshot | None:
        try:
            return await self._store.snapshot()
        except StoreFault as fault:
            log.warning("store failed, an engine is not told how far purges have come: %s", fault)
            return None

    async def _retire(self, site: Site, dropped: Iterable[Upstream]) -> None:
        await site.retire()
        self._retiring.discard(site)
        await close_all(dropped)

    async def _load(self, when_ready: Callable[[], None]) -> None:
        """Load the models side by side. What fails to load is said, and the rest goes on."""
        loading: list[Coroutine[Any, Any, None]] = [self._load_embedder()]
        loading += [one.start() for one in self._site.upstreams.values()]
        for result in await asyncio.gather(*loading, return_exceptions=True):
            if isinstance(result, BaseException):
                log.error("a part did not start: %s", result)
                self._say(f"a part did not start: {result}")
        self.health.loaded = True
        when_ready()

    async def _load_embedder(self) -> None:
        settings = self.config.embedder
        if settings is None:
            return
        self._say(f"embedder: loading {settings.model}")
        embedding = Embedding(
            settings,
            cache=self._cache,
            store=self._store,
            metrics=self._metrics,
            health=self.health,
            prepare=lambda name: self.audits.ledger.prepare(self.config.policies, embedder=name),
        )
        # Without it requests are answered by the exact tier and the upstreams.
        await embedding.start(self.beside.begin)
        self._say("embedder: ready")


async def _nothing_to_reload() -> ReloadReport:
    return ReloadReport(at=time.time(), ok=False, problems=("started without a config file",))
