"""Where an engine's time goes."""

from typing import Annotated

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromQuery, QueryParameter

from proxy.admin.engines import told
from proxy.admin.office import Office

LONGEST_S = 45.0
MOST_STEPS = 1000


class ProfileReport(msgspec.Struct, frozen=True, kw_only=True):
    """`phases`: seconds by what was done, in `steps_s` together. `trace`: base64 of a gzip of
    JSON that Chrome's and Perfetto's viewers read."""

    upstream: str
    num_steps: int
    steps_s: float
    phases: dict[str, float]
    trace: bytes


@post("/engine/profile", status_code=200)
async def profile(
    office: NamedDependency[Office],
    upstream: FromQuery[str | None] = None,
    steps: Annotated[int, QueryParameter(ge=1, le=MOST_STEPS)] = 50,
    seconds: Annotated[float, QueryParameter(gt=0, le=LONGEST_S)] = 30.0,
) -> ProfileReport:
    """Watch the next steps of an engine: so many, or those of so many seconds. `upstream` may be
    left out where there is one engine."""
    found = await told(office.kept.profile(upstream, num_steps=steps, longest_s=seconds))
    return ProfileReport(
        upstream=found.upstream,
        num_steps=found.num_steps,
        steps_s=found.steps_s,
        phases=dict(found.phases),
        trace=found.trace,
    )
