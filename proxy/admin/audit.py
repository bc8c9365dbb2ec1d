"""What was done on the admin port."""

from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from proxy.admin.deeds import MAX_REMEMBERED, Deed
from proxy.admin.office import Office


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first."""

    deeds: tuple[Deed, ...]


@get("/audit")
async def audit(
    office: NamedDependency[Office],
    what: FromQuery[str | None] = None,
    before: FromQuery[float | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MAX_REMEMBERED)] = 100,
) -> AuditPage:
    """Purges, erasures, feedback and reloads: who, when, what, and with what result. Older ones
    are those `before` the time (`at`) of the last."""
    return AuditPage(deeds=await office.deeds.latest(limit, what=what, before=before))
