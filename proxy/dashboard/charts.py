"""What the charts draw."""

from typing import Annotated

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from proxy.admin.office import Office
from proxy.dashboard.history import EVERY_S
from proxy.dashboard.sample import sample_of
from proxy.dashboard.series import Bin, series, whole
from proxy.processes.gathering import Count

_MAX_BINS = 300


class Charts(msgspec.Struct, frozen=True, kw_only=True):
    """`total`: of all that is remembered, a day at most, as far as the proxy runs so long."""

    bins: tuple[Bin, ...]
    total: Bin | None
    now: float


@get("/dashboard/history")
async def history(
    office: NamedDependency[Office],
    minutes: Annotated[int, QueryParameter(ge=1, le=24 * 60)] = 60,
    num_bins: Annotated[int, QueryParameter(ge=1, le=_MAX_BINS)] = 60,
) -> Charts:
    """Requests by outcome, latency and savings of all processes in the last minutes, in bins of
    whole minutes."""
    await office.peers().ask(Count())  # each process puts in what it has counted until now
    now = office.clock()
    samples = await office.metrics.read(
        lambda: (*office.history.all(), sample_of(office.metrics.totals(), at=now))
    )
    bin_s = EVERY_S * max(1, round(minutes / num_bins))
    count = -(-minutes * EVERY_S // bin_s)
    bins = series(samples, until=now, bin_s=bin_s, num_bins=count)
    return Charts(bins=bins, total=whole(samples), now=now)
