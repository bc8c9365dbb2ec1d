"""The part of the config that says what the proxy tells of its requests."""

from typing import Annotated

import msgspec
from msgspec import Meta

from proxy.settings.units import Secret

PerMillion = Annotated[float, Meta(ge=0)]


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model costs, for a million tokens: what answers from the cache save is reckoned by it.
    Nothing is ever billed by it."""

    input: PerMillion = 0.0
    """Tokens of the request."""
    cached_input: PerMillion | None = None
    """Those of them that the upstream took from its own prompt cache; absent: as `input`."""
    output: PerMillion = 0.0
    """Tokens of the answer."""
    currency: str = "USD"
    """Any text: sums of different currencies are kept apart."""


class Tracing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenTelemetry, over OTLP/HTTP: a trace of each request, and the metrics of its conventions
    for generative AI. Needs the extra `otel`. Neither prompts nor answers are told."""

    endpoint: str
    """Base URL of a collector; `/v1/traces` and `/v1/metrics` are put behind it."""
    headers: dict[str, Secret] = {}
    """Sent along with everything, such as the collector's key."""
    service: str = "rejoinder"
    """The resource's `service.name`."""
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0
    """The share of requests that are traced. Who sends `traceparent` has decided that already."""
    metrics: bool = True
    """Whether metrics are told too, once a minute."""
