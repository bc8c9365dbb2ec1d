"""The upstreams' servers, as all processes see them."""

from collections.abc import Iterable, Sequence

import msgspec
from litestar import get
from litestar.di import NamedDependency

from proxy.admin.office import Office
from proxy.counts import Counts
from proxy.gathering import Count

_IN_FLIGHT = "rejoinder_upstream_in_flight"
_LEFT_ALONE = "rejoinder_upstream_left_alone"


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `left_alone_by`: that many of `num_workers` processes send nothing to it for a
    while, since most requests to it failed."""

    upstream: str
    server: str
    in_flight: int
    left_alone_by: int
    num_workers: int


class UpstreamPage(msgspec.Struct, frozen=True, kw_only=True):
    """`states`: of the upstreams as a whole."""

    servers: tuple[ServerView, ...]
    states: dict[str, str]


@get("/dashboard/upstreams")
async def upstreams(office: NamedDependency[Office]) -> UpstreamPage:
    """The servers of all upstreams and their breakers."""
    report = await office.health.report()
    servers = servers_of((await office.peers().ask(Count())).counts)
    return UpstreamPage(servers=servers, states=report["upstreams"])


def servers_of(counts: Sequence[Counts]) -> tuple[ServerView, ...]:
    """Summed over the processes, in the order of the config."""
    in_flight, left_alone = _by_server(counts, _IN_FLIGHT), _by_server(counts, _LEFT_ALONE)
    return tuple(
        ServerView(
            upstream=upstream,
            server=server,
            in_flight=int(sum(values)),
            left_alone_by=int(sum(left_alone.get((upstream, server), ()))),
            num_workers=len(counts),
        )
        for (upstream, server), values in in_flight.items()
    )


def _by_server(counts: Iterable[Counts], name: str) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for one in counts:
        for gauge in one.gauges:
            if gauge.name == name:
                place = gauge.labels["upstream"], gauge.labels["server"]
                found.setdefault(place, []).append(gauge.value)
    return found
