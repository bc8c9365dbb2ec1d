"""What each process of a proxy has in hand, as the others are told of it, and what it comes to."""

from collections.abc import Iterable, Sequence

import msgspec

HELD_BYTES = "rejoinder_held_bytes"
_IN_FLIGHT = "rejoinder_upstream_in_flight"
_LEFT_ALONE = "rejoinder_upstream_left_alone"


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """One value of now, in Prometheus' terms."""

    name: str
    help: str
    labels: dict[str, str]
    value: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What is under way in one process."""

    worker: int
    in_flight: int
    """Upstream requests for cached surfaces."""
    waiting: int
    """Clients that wait for them."""
    gauges: tuple[Gauge, ...] = ()


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `left_alone_by`: that many of `num_workers` processes send nothing to it for a
    while, since most requests to it failed."""

    upstream: str
    server: str
    in_flight: int
    left_alone_by: int
    num_workers: int


def total_of(counts: Iterable[Counts], name: str) -> float:
    """A gauge summed over the processes."""
    return sum(gauge.value for one in counts for gauge in one.gauges if gauge.name == name)


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
