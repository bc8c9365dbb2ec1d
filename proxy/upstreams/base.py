"""The border behind which answers are made."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Protocol

import msgspec

from index.entry import Snapshot
from proxy.observing.timing import Timing


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a request is and what it depends on, for an upstream that keeps parts of prompts."""

    isolation: str = ""
    """Those who may be answered from each other's entries have the same."""
    tags: tuple[str, ...] | None = None
    """A purge of one of them drops what is kept; None: they are not known, any purge does."""
    snapshot: Snapshot | None = None
    """The store as the request saw it; None: it was not looked at, or failed."""
    may_keep: bool = True
    """Not so where the request says that nothing of it may be kept."""


class PagePurge(msgspec.Struct, frozen=True, kw_only=True):
    """A purge as it concerns what upstreams keep. `snapshot`: the store after it."""

    tags: tuple[str, ...]
    everything: bool
    dry_run: bool
    snapshot: Snapshot


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of the engine at `upstream`. `phases`: seconds by what was done, `steps_s` together;
    `trace`: gzip of Chrome's JSON."""

    upstream: str
    num_steps: int
    steps_s: float
    phases: Mapping[str, float]
    trace: bytes


class PrefixNode(msgspec.Struct, frozen=True, kw_only=True):
    """Pages with the same beginning of prompts, used alike. None of their text."""

    parent: int | None
    """Place in the list of the node that it continues; always an earlier one."""
    isolation: str
    """`Provenance.isolation` of those who may use it."""
    pages: int
    tokens: int
    tokens_below: int
    """Its own and those of all that continue it, shown or not."""
    refs: int
    """Sequences that hold it now."""
    pinned: bool
    tags: tuple[str, ...] | None
    """The first ones, as they are stored; None: they are not known, so any purge takes it."""
    num_tags: int | None
    age_s: float
    unused_s: float
    """Since a request last came by."""


class PrefixTree(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine at `upstream` keeps of prompts in memory: the largest of `num_nodes`."""

    upstream: str
    num_nodes: int
    num_tokens: int
    nodes: tuple[PrefixNode, ...]


class UpstreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. Headers are final but for the upstream's own credential."""

    request_id: str
    method: str
    path: str
    """Path below the upstream's base URL, with its slash: `/chat/completions`."""
    query: bytes
    """Raw query string of the client, without the question mark."""
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case; neither hop-by-hop nor ours (`proxy.request.headers`)."""
    credential: bytes | None
    """The client's `Authorization` value; only an upstream with passthrough may send it."""
    body: bytes | AsyncIterator[bytes]
    stream: bool
    """The client asked for a stream of server-sent events. It is sent with its usage wherever the
    upstream can count; clients that did not ask for usage are spared it later."""
    timing: Timing = msgspec.field(default_factory=Timing)
    """Of the request that it is sent for."""
    provenance: Callable[[], Provenance] = Provenance
    """Only asked by who keeps parts of prompts: it takes a while to tell."""


class UpstreamResponse(msgspec.Struct, kw_only=True):
    """What came back, headers first. Not frozen: it owns a connection that `aclose` gives back."""

    upstream: str
    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case; hop-by-hop headers are gone, the body is not compressed."""
    body: AsyncGenerator[bytes, None]
    """Chunks as they arrive. Raises `UpstreamError` when it breaks; ends only when it is whole.
    `aclose()` on it, also before its end, closes the connection or gives it back."""
    delimited: bool = True
    """Its end is told beforehand or by a mark, so that a cut is noticed. Not so where the end of
    the connection is all there is, nor within a compressed body."""
    is_personal: bool = False
    """It was asked for with the client's own credential: refusals and limits are of its account."""

    @property
    def content_type(self) -> bytes:
        """Media type without parameters, in lower case; empty if there is none."""
        for name, value in self.headers:
            if name == b"content-type":
                return value.split(b";", 1)[0].strip().lower()
        return b""


class Server(Protocol):
    """One place that answers, in OpenAI's wire format: a server at a base URL, or the engine."""

    name: str
    """Where it is, as logs and metrics call it."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send and wait for the headers. Any status is a response; raises `UpstreamError` when
        there is none. Cancelling it closes the connection."""
        ...


class Upstream(Protocol):
    """One server, several that are alike, or the bundled engine: what a route names. Requests go
    to its servers through its `proxy.upstreams.pool.Pool`."""

    name: str

    @property
    def servers(self) -> tuple[Server, ...]:
        """Where requests can be sent; at least one, always the same."""
        ...

    @property
    def identity(self) -> str:
        """What of this upstream belongs to the cache key: its name; for the engine also the
        digest of weights, chat template and KV mode, so that another model under one name never
        answers."""
        ...

    @property
    def models(self) -> tuple[str, ...]:
        """Model ids that it is known to serve (for `/v1/models`); empty when it has to be asked."""
        ...

    @property
    def has_engine(self) -> bool:
        """It is the bundled engine."""
        ...

    async def start(self) -> None:
        """Load what has to be loaded, and return when it is. Requests may come before."""
        ...

    async def state(self) -> str:
        """`ready`, `loading`, or why it cannot answer; never waits for the upstream."""
        ...

    async def purge(self, purge: PagePurge) -> int:
        """Drop what is kept of prompts that depended on this; how many pages that were. When it
        returns no request that starts later meets them. Nothing is kept, 0, by a server."""
        ...

    async def figures(self) -> Mapping[str, int]:
        """What it has in hand, by name; empty for a server, and while there is nobody to ask."""
        ...

    async def profile(self, *, num_steps: int, longest_s: float) -> EngineProfile | None:
        """Of the next steps; None for a server, whose steps nobody sees. Raises
        UpstreamUnreachable."""
        ...

    async def prefix_tree(self, *, max_nodes: int) -> PrefixTree | None:
        """None for a server. Raises UpstreamUnreachable."""
        ...

    async def close(self) -> None:
        """Close connections and processes. Idempotent."""
        ...
