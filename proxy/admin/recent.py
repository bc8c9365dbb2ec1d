"""The requests that went through lately."""

from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from proxy.admin.office import Office
from proxy.processes.gathering import Recall
from proxy.recent import MAX_REQUESTS
from proxy.seen import Seen


class RecentPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    requests: tuple[Seen, ...]


@get("/cache/recent")
async def recent(
    office: NamedDependency[Office],
    outcome: FromQuery[str | None] = None,
    tenant: FromQuery[str | None] = None,
    policy: FromQuery[str | None] = None,
    near: FromQuery[bool] = False,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_REQUESTS)] = 100,
) -> RecentPage:
    """The last requests to the cached surfaces, of all processes, that match all that is given.
    `near`: only those that a stored question was near to, whose answer was not given."""

    def fits(one: Seen) -> bool:
        given = ((outcome, one.outcome), (tenant, one.tenant), (policy, one.policy))
        return all(asked in (None, has) for asked, has in given) and (bool(one.near) or not near)

    everything = (await office.peers().ask(Recall(limit=MAX_REQUESTS))).requests
    return RecentPage(requests=tuple(filter(fits, everything))[:limit])
