"""The requests that went through lately."""

import math
from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from proxy.admin.office import Office
from proxy.errors import ClientError
from proxy.observing.recent import MAX_REQUESTS, place_of
from proxy.observing.seen import Seen
from proxy.processes.gathering import Recall


class RecentPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first; `cursor` continues, null at the end."""

    requests: tuple[Seen, ...]
    cursor: str | None


@get("/cache/recent")
async def recent(
    office: NamedDependency[Office],
    outcome: FromQuery[str | None] = None,
    tenant: FromQuery[str | None] = None,
    policy: FromQuery[str | None] = None,
    near: FromQuery[bool] = False,
    cursor: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_REQUESTS)] = 100,
) -> RecentPage:
    """The last requests to the cached surfaces, of all processes, that match all that is given.
    `near`: only those that a stored question was near to, whose answer was not given."""
    end = None if cursor is None else _place_of(cursor)

    def fits(one: Seen) -> bool:
        given = ((outcome, one.outcome), (tenant, one.tenant), (policy, one.policy))
        if end is not None and place_of(one) >= end:
            return False
        return all(asked in (None, has) for asked, has in given) and (bool(one.near) or not near)

    everything = (await office.peers().ask(Recall(limit=MAX_REQUESTS))).requests
    found = tuple(filter(fits, everything))
    shown = found[:limit]
    more = len(found) > len(shown)
    return RecentPage(requests=shown, cursor=_cursor_of(shown[-1]) if more else None)


def _cursor_of(last: Seen) -> str:
    at, request_id = place_of(last)
    return f"{at}:{request_id}"


def _place_of(cursor: str) -> tuple[float, str]:
    written, _, request_id = cursor.partition(":")
    try:
        at = float(written)
    except ValueError:
        at = math.nan
    if not math.isfinite(at):
        raise ClientError(400, f"{cursor[:80]!r} is no cursor.", param="cursor")
    return at, request_id
