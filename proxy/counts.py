"""What one process of a proxy has in hand, as the others are told of it."""

import msgspec


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
