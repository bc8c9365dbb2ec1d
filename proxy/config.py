"""The config as types; `proxy.configfile` reads it from YAML. Units and defaults stand here."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from proxy.units import Bytes, Duration, Secret

Share = Literal["credential", "tenant", "everyone"]
Fold = Literal["trim", "line_endings", "unicode", "collapse_spaces", "casefold"]
Ratio = Annotated[float, Meta(ge=0, le=1)]


class Timeout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Longest wait by phase. The defaults let reasoning models think."""

    connect: Duration = Duration(5)
    first_byte: Duration = Duration(120)
    idle: Duration = Duration(60)
    """Between two pieces of an answer."""
    total: Duration = Duration(600)


class KVCache(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pages of the engine's KV cache."""

    dtype: Literal["int8", "bf16", "fp32"] = "int8"
    page_tokens: Literal[16, 32, 64] = 32
    memory: Bytes = Bytes(256 * 2**20)


class Engine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bundled engine, in a process of its own."""

    model: str
    """A path, or `package:NAME` for an installed package that carries the model."""
    model_id: str = ""
    """The id in `/v1/models` and in answers; by default made from the model's own name."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    weights: Literal["auto", "fp32", "bf16"] = "auto"
    kv_cache: KVCache = KVCache()
    max_context: Annotated[int, Meta(ge=16)] = 8192
    max_batch: Annotated[int, Meta(ge=1, le=1024)] = 32
    """Sequences in one running batch."""
    threads: Annotated[int, Meta(ge=0)] = 0
    """CPU threads; 0 takes all cores."""


class Upstream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where misses go: `base_url` of any OpenAI-compatible server, or `engine`."""

    base_url: str | None = None
    engine: Engine | None = None
    credential: Literal["passthrough", "own"] = "passthrough"
    """`passthrough`: the client's own Authorization; `own`: `api_key` of this file."""
    api_key: Secret = Secret()
    auth: Literal["bearer", "api-key"] = "bearer"
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    timeout: Timeout = Timeout()
    max_connections: Annotated[int, Meta(ge=1)] = 200
    stream_usage: bool = True
    """Ask for usage at the end of streams (`stream_options.include_usage`)."""

    def __post_init__(self) -> None:
        if (self.base_url is None) == (self.engine is None):
            raise ValueError("give either `base_url` or `engine`")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError("`base_url` must begin with http:// or https://")
        if self.credential == "own" and not self.api_key:
            raise ValueError("`credential: own` needs `api_key`")


class Semantic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Answers by meaning. `{}` takes all defaults."""

    profile: Literal["strict", "balanced", "intent"] = "strict"
    threshold: Ratio | None = None
    """Least cosine similarity; by default the embedder's and profile's own."""
    candidates: Annotated[int, Meta(ge=1, le=64)] = 8
    deadline: Duration = Duration(0.25)
    """A later embedding or search is a miss."""


class TagRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a request names what its answer depends on: a header, or a pattern in its messages."""

    header: str | None = None
    prefix: str = ""
    """Put before each value of the header."""
    pattern: str | None = None
    tag: str | None = None
    r"""Made from a match of `pattern`; `\1` is its first group."""

    def __post_init__(self) -> None:
        if (self.header is None) == (self.pattern is None):
            raise ValueError("give either `header` or `pattern`")
        if (self.pattern is None) != (self.tag is None):
            raise ValueError("`pattern` and `tag` belong together")


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How answers are kept and when they may be used again."""

    ttl: Duration = Duration(3600)
    max_ttl: Duration = Duration(30 * 86400)
    """Cap of what a request may ask for."""
    jitter: Ratio = 0.05
    """Share of the TTL by which entries expire earlier, so that they do not expire all at once."""
    stale_while_revalidate: Duration = Duration(0)
    stale_if_error: Duration = Duration(0)
    share: Share = "credential"
    """Who may be answered from an entry: the same credential, the same tenant, everyone."""
    normalize: tuple[Fold, ...] = ()
    semantic: Semantic | None = None
    tags: tuple[TagRule, ...] = ()
    on_disconnect: Literal["cancel", "finish"] = "cancel"
    """When every client has left: stop the upstream, or finish into the cache."""
    max_entry: Bytes = Bytes(8 * 2**20)
    """A larger answer is passed through and not stored."""


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests a route takes: all given parts must hold; `*` and `?` are wildcards."""

    model: str | tuple[str, ...] | None = None
    path: str | None = None
    header: dict[str, str] = {}
    tenant: str | None = None


class CacheUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The long form of a route's `cache`. `shadow`: look up and report, but never serve."""

    policy: str
    mode: Literal["serve", "shadow"] = "serve"


class ModelRewrite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The model name that the upstream is asked for."""

    rewrite: str


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First match wins. `to` is one upstream, or several in order of preference."""

    to: str | tuple[str, ...]
    match: Match = Match()
    cache: str | CacheUse = "none"
    """Name of a policy, or `none`."""
    model: ModelRewrite | None = None
    retries: Annotated[int, Meta(ge=0, le=10)] = 2


class Admin(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The admin listener, apart from the data port."""

    listen: str = "127.0.0.1:8081"
    token: Secret = Secret()
    hosts: tuple[str, ...] = ()
    """Names that the admin port may be called by, beside loopback."""


class Store(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`path` and `memory`: SQLite with a memory tier; `memory` alone: gone with the process."""

    path: str | None = None
    memory: Bytes = Bytes(64 * 2**20)
    disk: Bytes = Bytes(8 * 2**30)


class Embedder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes embeddings: a path, or `package:NAME` for an installed package with the model."""

    model: str
    threads: Annotated[int, Meta(ge=1)] = 1


class Tenants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of the proxy's own. Absent: each credential is a tenant of its own."""

    keys: dict[Secret, str] = {}
    anonymous: bool = False
    """Serve requests without a known key, as the tenant `anonymous`."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request may weigh."""

    body: Bytes = Bytes(32 * 2**20)
    headers: Bytes = Bytes(64 * 2**10)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole config file."""

    listen: str = "127.0.0.1:8080"
    upstreams: dict[str, Upstream]
    routes: tuple[Route, ...]
    admin: Admin = Admin()
    store: Store = Store()
    embedder: Embedder | None = None
    tenants: Tenants | None = None
    aliases: dict[str, str] = {}
    policies: dict[str, Policy] = {}
    limits: Limits = Limits()
    drain: Duration = Duration(30)
    """After SIGTERM: how long requests in flight may go on."""
