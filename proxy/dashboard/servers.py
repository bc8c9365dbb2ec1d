"""The upstreams' servers, as all processes see them."""

import msgspec
from litestar import get
from litestar.di import NamedDependency

from proxy.admin.office import Office
from proxy.processes.counts import ServerView, servers_of
from proxy.processes.gathering import Count


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
