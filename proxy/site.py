"""Everything that one config makes. A reload makes another site and swaps one reference; requests
in flight keep the one they began with, which is closed when the last of them is done."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from index.lease import Leases
from index.store import Store
from proxy.answer.replay import Replays
from proxy.answering import Answering
from proxy.auditing.auditor import Auditor
from proxy.auditing.audits import Audits
from proxy.auditing.judges import Judges
from proxy.deciding import Decider
from proxy.embeddings.batches import Batches
from proxy.embeddings.making import Maker
from proxy.errors import UpstreamStopped
from proxy.explaining.asking import Asking
from proxy.explaining.costs import Costs
from proxy.explaining.explainer import Explainer
from proxy.lookup.cache import Cache
from proxy.lookup.meaning import calibration_for, patterns_of_policy, rules_of_tiers
from proxy.misses.flights import Flights
from proxy.misses.forwarding import Forwarder
from proxy.misses.keeping import Keeper
from proxy.misses.outgoing import Outgoing
from proxy.misses.turns import NoTurns, Turns
from proxy.observing.metrics import Metrics
from proxy.observing.prices import Prices
from proxy.observing.spending import Spending
from proxy.pipeline import Pipeline
from proxy.port.intake import Intake
from proxy.port.passthrough import Passthrough
from proxy.port.receiving import Receiver
from proxy.request.headers import pseudonym
from proxy.request.passing import Passing
from proxy.request.routing import Router
from proxy.settings.config import Config
from proxy.tenancy.meters import Meters
from proxy.tenancy.quotas import Quotas
from proxy.tenancy.tenants import Tenants
from proxy.transfer.pairs import Pairs
from proxy.upstreams.base import Upstream
from proxy.upstreams.budget import RetryBudget
from proxy.upstreams.fallback import Sender
from proxy.upstreams.pool import Pool

_INTAKE_BYTES = 8 * 2**20
"""Requests that were read and decided, remembered up to about this size."""
_REPLAYS_BYTES = 8 * 2**20
"""Answers that had to be put into another form, remembered up to this size."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What outlives every reload."""

    cache: Cache
    store: Store
    metrics: Metrics
    secret: bytes
    """The store's; see `index.store.Store.secret`."""
    leases: Leases
    """The store's."""
    meters: Meters
    audits: Audits
    spending: Spending
    clock: Callable[[], float]


class Guests:
    """The requests that use a site."""

    def __init__(self) -> None:
        self._num_present = 0
        self._awaited = False
        self._empty = asyncio.Event()

    def __enter__(self) -> None:
        self._num_present += 1

    def __exit__(self, *_: object) -> None:
        self._num_present -= 1
        if self._awaited and not self._num_present:
            self._empty.set()

    async def gone(self) -> None:
        """Returns when there is none; nobody new may come."""
        if self._num_present:
            self._awaited = True
            await self._empty.wait()


class Site(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The rooms of one config. Upstreams may belong to the next site as well."""

    config: Config
    upstreams: Mapping[str, Upstream]
    sender: Sender
    quotas: Quotas
    receiver: Receiver
    intake: Intake
    replays: Replays
    router: Router
    pipeline: Pipeline
    passthrough: Passthrough
    pairs: Pairs
    asking: Asking
    flights: Flights
    keeper: Keeper
    auditor: Auditor
    guests: Guests

    async def retire(self) -> None:
        """Returns when no request and no flight uses this site any more; new ones must not come."""
        await self.guests.gone()
        await self.auditor.settle()
        await self.flights.settle()
        await self.keeper.close()

    def forget(self) -> None:
        """Drop what is remembered of requests and answers, so that they need not be read again."""
        self.intake.forget()
        self.replays.forget()

    def break_off(self) -> None:
        """Answers under way end with an error: their time is up."""
        self.flights.abandon(UpstreamStopped("the proxy is shutting down", upstream=""))


def make_site(
    config: Config, upstreams: Mapping[str, Upstream], pools: Mapping[str, Pool], shared: Shared
) -> Site:
    """Wire the rooms. `config` was checked, `upstreams` has all that it names, and `pools` has the
    pool of each."""
    via = pseudonym(shared.secret)
    router = Router(config, upstreams)
    decider = Decider(
        router,
        config.policies,
        secret=shared.secret,
        applications=[n for n, one in config.upstreams.items() if one.kind == "application"],
        patterns_of=patterns_of_policy,
        rules_of=rules_of_tiers(config.embedder),
    )
    keeper = Keeper(
        cache=shared.cache,
        decider=decider,
        metrics=shared.metrics,
        clock=shared.clock,
        honour={name: one.honour for name, one in config.upstreams.items()},
        spending=shared.spending,
    )
    flights = Flights()
    sender = Sender(
        pools, budget=RetryBudget(share=config.retry_budget), count=shared.metrics.attempted
    )
    outgoing = Outgoing(sender, via=via)
    forwarder = Forwarder(
        flights=flights, outgoing=outgoing, keeper=keeper, turns=_turns(config, shared)
    )
    auditor = Auditor(
        ledger=shared.audits.ledger,
        forwarder=forwarder,
        judges=Judges(
            router=router,
            outgoing=outgoing,
            semantic=lambda: shared.cache.semantic,
            calibration=calibration_for(config.embedder),
        ),
        reports=shared.audits.reports,
        metrics=shared.metrics,
    )
    replays = Replays(max_bytes=_REPLAYS_BYTES)
    pipeline = Pipeline(
        cache=shared.cache,
        forwarder=forwarder,
        auditor=auditor,
        answering=Answering(replays, keep_alive_s=config.keep_alive),
        batches=Batches(
            decider=decider,
            cache=shared.cache,
            maker=Maker(flights=flights, outgoing=outgoing, keeper=keeper),
        ),
    )
    quotas = Quotas(config, meters=shared.meters, clock=shared.clock)
    receiver = Receiver(Tenants(config.tenants), config.limits, via=via, clock=shared.clock)
    return Site(
        config=config,
        upstreams=upstreams,
        sender=sender,
        quotas=quotas,
        receiver=receiver,
        intake=Intake(
            receiver,
            decider,
            quotas=quotas,
            passing=Passing(config.routes, config.policies),
            max_bytes=_INTAKE_BYTES,
            clock=shared.clock,
        ),
        replays=replays,
        router=router,
        pipeline=pipeline,
        passthrough=Passthrough(router, sender, via=via),
        pairs=Pairs(receiver, decider, cache=shared.cache, keeper=keeper),
        asking=_asking(receiver, decider, shared, Costs(Prices(config.prices))),
        flights=flights,
        keeper=keeper,
        auditor=auditor,
        guests=Guests(),
    )


def _asking(receiver: Receiver, decider: Decider, shared: Shared, costs: Costs) -> Asking:
    cache = shared.cache
    explainer = Explainer(
        decider=decider, cache=cache, store=shared.store, costs=costs, clock=shared.clock
    )
    return Asking(
        receiver=receiver, decider=decider, explainer=explainer, semantic=lambda: cache.semantic
    )


def _turns(config: Config, shared: Shared) -> Turns | NoTurns:
    if not config.store.lease:
        return NoTurns()
    return Turns(shared.leases, cache=shared.cache, patience_s=config.store.lease)
