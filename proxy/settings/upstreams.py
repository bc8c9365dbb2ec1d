"""The part of the config that says where misses go."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from proxy.settings.default import default
from proxy.settings.engine import Engine
from proxy.settings.units import Duration, Secret

Weight = Annotated[int, Meta(ge=1, le=1000)]


class Timeout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Longest wait by phase. The defaults let reasoning models think."""

    connect: Duration = default(Duration(5))
    """Until the connection stands, TLS included."""
    first_byte: Duration = default(Duration(120))
    """From the request's last byte to the answer's first."""
    idle: Duration = default(Duration(60))
    """Between two pieces of an answer."""
    total: Duration = default(Duration(600))
    """From the beginning to the answer's last byte."""


class Queue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where requests wait, in the order of their coming, while `max_in_flight` are under way. Who
    finds it full, or waits too long, goes to the route's next upstream, or gets a 429."""

    length: Annotated[int, Meta(ge=0)] = 256
    """Requests that wait at most."""
    timeout: Duration = default(Duration(10))
    """How long each of them waits at most."""


class UpstreamTls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates of an https upstream. Relative paths count from the current folder."""

    ca: str | None = None
    """A PEM file of the authorities that are trusted, instead of the usual ones."""
    cert: str | None = None
    """The certificate that the proxy shows to the server, PEM."""
    key: str | None = None
    """Its private key, PEM, where the file of the certificate does not hold it too."""
    verify: bool = True
    """`false` accepts any certificate: encryption without knowing with whom. For tests."""

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise ValueError("`key` without `cert`")
        if self.ca is not None and not self.verify:
            raise ValueError("`ca` has no use with `verify: false`")


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """One server of an upstream."""

    url: str
    weight: int


class Upstream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where misses go: `base_url` of any OpenAI-compatible server, or `engine`."""

    base_url: str | tuple[str, ...] | dict[str, Weight] | None = None
    """With or without `/v1`, as the server's own documentation gives it. A list where several
    servers are alike, or a mapping of base URLs to weights: one of weight 2 gets twice as much."""
    balance: Literal["round_robin", "least_busy", "prefix_affinity"] = "round_robin"
    """Which of several servers is asked: in turn; the one with the fewest requests in flight; or
    always the same one for prompts that begin alike, which suits the prefix caches of model
    servers, as long as it is not much busier than the others."""
    engine: Engine | None = None
    """The bundled engine instead of a server."""
    kind: Literal["model", "application"] = "model"
    """`application`: more than a model, such as a RAG service, which may look at who asks. Then
    `user` and `metadata` of a request count in its key."""
    honour: tuple[Literal["no-store", "max-age"], ...] = ()
    """What of its answers' `Cache-Control` is obeyed. Model servers send it without meaning it."""
    credential: Literal["passthrough", "own"] = "passthrough"
    """`passthrough`: the client's own key goes upstream (none does where the config has `tenants`,
    whose keys are the proxy's); `own`: `api_key` of this file."""
    api_key: Secret = default(Secret())
    """The key for `credential: own`."""
    auth: Literal["bearer", "api-key"] = "bearer"
    """The header that carries the key: `Authorization: Bearer`, or `api-key` as Azure wants it."""
    query: dict[str, Secret] = {}
    """Added to the query string of each request, such as Azure's `api-version`."""
    headers: dict[str, Secret] = {}
    """Added to each request."""
    tls: UpstreamTls = default(UpstreamTls())
    """Certificates, for https. Proxies come from the environment: `HTTP_PROXY`, `HTTPS_PROXY`,
    `ALL_PROXY` and `NO_PROXY`, as curl reads them."""
    timeout: Timeout = default(Timeout())
    """Longest wait by phase."""
    max_in_flight: Annotated[int, Meta(ge=1)] = 1024
    """Requests under way at most, each until its answer has ended; all servers together."""
    queue: Queue = default(Queue())
    """Where further requests wait."""
    stream_usage: bool = True
    """Ask for usage at the end of streams (`stream_options.include_usage`)."""

    @property
    def bases(self) -> tuple[Base, ...]:
        """The servers of `base_url`, whichever way it is written; none for the engine."""
        match self.base_url:
            case None:
                return ()
            case str(url):
                return (Base(url=url, weight=1),)
            case dict(weights):
                return tuple(Base(url=url, weight=weight) for url, weight in weights.items())
            case urls:
                return tuple(Base(url=url, weight=1) for url in urls)

    def __post_init__(self) -> None:
        if (self.base_url is None) == (self.engine is None):
            raise ValueError("give either `base_url` or `engine`")
        if self.engine is None and not self.bases:
            raise ValueError("`base_url` is empty")
        if not all(base.url.startswith(("http://", "https://")) for base in self.bases):
            raise ValueError("`base_url` must begin with http:// or https://")
        if self.engine is not None and (self.kind != "model" or self.honour):
            raise ValueError("`kind` and `honour` are for servers, not for `engine`")
        if self.credential == "own" and not self.api_key:
            raise ValueError("`credential: own` needs `api_key`")
