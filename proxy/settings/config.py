"""The config as types; `proxy.settings.file` reads it from YAML.

Units and defaults stand here. The docstrings of classes and fields are the config's reference: the
JSON Schema carries them (`rejoinder schema`).
"""

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from proxy.settings.default import default
from proxy.settings.embedder import Embedder
from proxy.settings.listeners import Admin, Quota, Shutdown, Tls
from proxy.settings.observing import Price, Tracing
from proxy.settings.record import Record
from proxy.settings.semantic import Semantic
from proxy.settings.units import Bytes, Duration, Secret
from proxy.settings.upstreams import Upstream
from proxy.settings.volatile import Volatile

_REDIS_SCHEMES = ("redis", "rediss", "unix")

Share = Literal["credential", "tenant", "everyone"]
Fold = Literal["trim", "line_endings", "unicode", "collapse_spaces", "casefold", "message_ids"]
Omitted = Literal[
    "user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier", "store"
]
Ratio = Annotated[float, Meta(ge=0, le=1)]


class TagRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a request names what its answer depends on: in a header, by a pattern in its messages,
    in the tools that were called, or by the documents in it."""

    header: str | None = None
    """Name of a header whose values, separated by commas, are tags."""
    tool: str | None = None
    """Pattern (`*`, `?`) of the names of tools; each that was called is a tag."""
    argument: str | None = None
    """With `tool`: the argument whose value, or whose list of values, is the tag instead."""
    documents: bool = False
    """`true`: each file in the messages is a tag: the SHA-256 of its bytes (or of its text), in
    hex digits; its id or URL where it is kept elsewhere."""
    prefix: str = ""
    """Put before each value of the header, tool, argument or document."""
    pattern: str | None = None
    """Regular expression (Python's, as the `regex` package reads it), searched in all texts of a
    request but the answers of assistants."""
    tag: str | None = None
    r"""Made from a match of `pattern`; `\1` is its first group."""

    def __post_init__(self) -> None:
        sources = (self.header, self.pattern, self.tool, self.documents or None)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("give one of `header`, `pattern`, `tool`, `documents`")
        if self.argument is not None and self.tool is None:
            raise ValueError("`argument` belongs to `tool`")
        if (self.pattern is None) != (self.tag is None):
            raise ValueError("`pattern` and `tag` belong together")


class Key(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What makes two requests the same."""

    include: tuple[Omitted, ...] = ()
    """Fields of the request that count here, although they are left out of keys as a rule."""


class When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests the policy is for; all others go to the upstream, and their answers are not
    kept."""

    temperature_at_most: Annotated[float, Meta(ge=0)] | None = None
    """Those that ask for no more randomness. A request that names no temperature has 1."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How answers are kept and when they may be used again."""

    ttl: Duration = default(Duration(3600))
    """How long an answer is fresh, where the request does not say."""
    max_ttl: Duration = default(Duration(30 * 86400))
    """Cap of what a request may ask for."""
    jitter: Ratio = 0.05
    """Share of the TTL by which entries expire earlier, so that they do not expire all at once."""
    stale_while_revalidate: Duration = default(Duration(0))
    """How long after that an answer is still given while a new one is made behind it."""
    stale_if_error: Duration = default(Duration(0))
    """How long after that an answer is still given when the upstream fails."""
    share: Share = "credential"
    """Who may be answered from an entry: the same credential, the same tenant, everyone."""
    normalize: tuple[Fold, ...] = ()
    """Differences in the text of user and system messages that do not make another request, and
    `message_ids`: those in the ids that clients give to messages and tool calls. Texts that look
    like code or quotations keep their spaces, letters and characters."""
    strip: tuple[str, ...] = ()
    """What does not count in the text of user and system messages: `uuid`, `timestamp` (with a
    time of day), `request_id` (`req_…`, `trace-…` and the like), or regular expressions of your own
    (Python's, as the `regex` package reads them). A request on which they take more than 100 ms
    passes the cache by."""
    key: Key = default(Key())
    """Which fields of a request make it another one."""
    semantic: Semantic | None = None
    """Answers by meaning; absent: exact requests only, `{}`: all defaults."""
    tags: tuple[TagRule, ...] = ()
    """Where requests name what their answers depend on, beside `X-Cache-Tags`."""
    when: When = When()
    """Which requests it is for."""
    never: tuple[Literal["volatile", "personal"], ...] = ()
    """Questions that are not answered from the cache even where they are asked again word for word:
    those whose answer changes by itself, and those whose answer is each person's own. A policy with
    `semantic` leaves out both in any case; a request that names a TTL is always taken."""
    volatile: Volatile = Volatile()
    """Which questions these are."""
    early_refresh: bool = True
    """Refresh an answer behind its readers' backs shortly before it expires: the sooner, the longer
    it took to make, and by chance, so that many readers of one answer do not all do it at once."""
    on_disconnect: Literal["cancel", "finish"] = "cancel"
    """When every client has left: stop the upstream, or finish into the cache."""
    hide_outcome: bool = False
    """Leave out the headers `X-Cache`, `X-Cache-Similarity`, `Cache-Status` and `Age`: with
    `share: everyone` they tell strangers what was asked before. Less plainly it is still told by
    how soon an answer comes, by headers that only the upstream sends, and by `only-if-cached`."""
    max_entry: Bytes = default(Bytes(8 * 2**20))
    """A larger answer is passed through and not stored."""


class Span(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From `min` up to and with `max`."""

    min: Bytes = default(Bytes(0))
    """At least."""
    max: Bytes | None = None
    """At most; absent: no bound."""

    def __post_init__(self) -> None:
        if self.max is not None and self.max < self.min:
            raise ValueError("`max` is below `min`")


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests a route takes: all given parts must hold. `*` stands for any text, slashes
    too, and `?` for one character. Surfaces whose body is passed through unread (files, audio,
    images, batches) are matched by path, header and tenant; they meet no condition on model or
    body."""

    model: str | tuple[str, ...] | None = None
    """Pattern of the model's name, aliases resolved; of several, one must fit."""
    path: str | None = None
    """Pattern of the path, from `/v1/` on."""
    header: dict[str, str] = {}
    """Patterns of headers' values; all must fit."""
    tenant: str | None = None
    """Pattern of the tenant's name."""
    body: dict[str, str] = {}
    """Patterns of fields of the request, by their path: `metadata.team`. Numbers and `true` count
    as they are written in JSON; a list fits when one of its items does."""
    prompt_bytes: Span | None = None
    """How long the text of all messages is, in bytes of UTF-8: about four make a token."""


class CacheUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The long form of a route's `cache`."""

    policy: str
    """Name of a policy."""
    mode: Literal["serve", "shadow"] = "serve"
    """`shadow`: look up, store and report, but never answer from the cache."""


class ModelRewrite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another model name for the upstream."""

    rewrite: str
    """The model that the upstream is asked for."""


class Hedge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A second request beside a slow one. Whoever answers first is taken, the other is cancelled.
    It counts as a retry."""

    after: Duration
    """How long a stream may go without its first event before another server, or the next upstream,
    is asked too."""


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to the requests that match. The first route that matches counts."""

    to: str | tuple[str, ...]
    """One upstream, or several in order of preference."""
    match: Match = Match()
    """Which requests it takes; `{}` takes all."""
    cache: str | CacheUse = "none"
    """Name of a policy, or `none`."""
    model: ModelRewrite | None = None
    """Ask the upstream for another model."""
    retries: Annotated[int, Meta(ge=0, le=10)] = 2
    """Further attempts at the same upstreams, before the client has got a byte. The next upstream
    of the list is tried in any case."""
    hedge: Hedge | None = None
    """A second request where a stream begins slowly; absent: never. Plain answers begin only when
    they are finished, so they are never asked for twice."""


class Store(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`path`: SQLite, for the workers of one machine; `redis`: for several machines. Both have a
    memory tier in front. Neither: gone with the process."""

    path: str | None = None
    """The SQLite file; a relative path counts from the current folder."""
    redis: Secret = default(Secret())
    """URL of a Redis, 7 or later, or of any server of a Redis Cluster: `redis://HOST:PORT/DB`,
    `rediss://` with TLS, `unix:///PATH`; a password stands in it as `redis://:PASSWORD@HOST`."""
    replicas: Annotated[int, Meta(ge=0)] = 0
    """How many replicas of each Redis master must have a purge before it returns."""
    deadline: Duration = default(Duration(0.25))
    """A later answer of Redis is a miss; until it answers again, requests do not wait for it."""
    lease: Duration = default(Duration(10))
    """How long a request waits for the answer that another proxy on the same Redis is making; then
    it asks the upstream itself. 0: at once."""
    filter: Bytes = default(Bytes(0))
    """What a filter of the keys in Redis may take: keys that were never stored are not asked for.
    Worth it where Redis is far away. 0 for none."""
    vectors: Literal["auto", "workers"] = "auto"
    """Where the vectors of answers by meaning are: `auto`: in Redis where that has vector sets (8.2
    and later), else in each worker; `workers`: in each worker, which costs its memory and spares
    searches the way to Redis."""
    memory: Bytes = default(Bytes(64 * 2**20))
    """What the memory tier may take."""
    disk: Bytes = default(Bytes(8 * 2**30))
    """What the file, or all entries in Redis, may take."""

    def __post_init__(self) -> None:
        if self.path is not None and self.redis:
            raise ValueError("give either `path` or `redis`")
        if self.redis and not _is_redis(self.redis):
            raise ValueError("`redis` must be a URL: redis://HOST:PORT/DB, rediss:// or unix://")
        if not self.deadline:
            raise ValueError("`deadline` must be more than 0")


class Tenants(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of the proxy's own. Absent: each credential is a tenant of its own."""

    keys: dict[Secret, str] = {}
    """Key: name of the tenant. Several keys may have one tenant."""
    anonymous: bool = False
    """Serve requests without a known key, as the tenant `anonymous`."""
    limits: dict[str, Quota] = {}
    """Other limits than `limits.each_tenant`, by the tenant's name."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request may weigh."""

    body: Bytes = default(Bytes(32 * 2**20))
    """A larger body is refused with 413."""
    headers: Bytes = default(Bytes(64 * 2**10))
    """All headers together; more are refused with 431."""
    head_timeout: Duration = default(Duration(30))
    """How long the request line and the headers may take to come in, from their first byte or the
    beginning of the connection. Then 408, or just the end where nothing came."""
    body_timeout: Duration = default(Duration(60))
    """How long no piece of a body may come, before it is whole. Then 408."""
    each_tenant: Quota = default(Quota())
    """What each tenant may ask for, where `tenants.limits` does not say otherwise."""

    def __post_init__(self) -> None:
        for name in ("head_timeout", "body_timeout"):
            if not getattr(self, name):
                raise ValueError(f"`{name}` must be more than 0")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole config file."""

    listen: str | tuple[str, ...] = "127.0.0.1:8080"
    """The data port: `HOST:PORT`, `[IPv6]:PORT` or `unix:/path`, or a list of them."""
    tls: Tls | None = None
    """HTTPS on the data port."""
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    """Processes that answer requests. They share the store: it needs a `path` or `redis` then."""
    upstreams: dict[str, Upstream]
    """Where misses go, by name."""
    routes: tuple[Route, ...]
    """What happens to each request; the first that matches counts."""
    admin: Admin = default(Admin())
    """The admin port."""
    store: Store = default(Store())
    """Where answers are kept."""
    embedder: Embedder | None = None
    """What makes embeddings; needed for policies with `semantic`."""
    tenants: Tenants | None = None
    """Keys of the proxy's own. Absent: each credential is a tenant of its own."""
    aliases: dict[str, str] = {}
    """Other names for models: a request for the first asks for the second."""
    policies: dict[str, Policy] = {}
    """How answers are kept and used again, by name."""
    retry_budget: Ratio = 0.2
    """Retries may be this share of all requests, so that they cannot multiply an overload."""
    limits: Limits = default(Limits())
    """What a request may weigh."""
    keep_alive: Duration = default(Duration(10))
    """A stream that is silent gets a comment after this time, or up to half as long again, so that
    nothing on the way takes it for dead."""
    prices: dict[str, Price] = {}
    """What models cost, by patterns (`*`, `?`) of their names, as the upstream names them or as
    they are asked for; the first that fits counts."""
    server_timing: bool = True
    """Say in the header `Server-Timing` where the time of an answer went, in milliseconds; where a
    policy has `hide_outcome`, it is left out."""
    access_log: str = "off"
    """`stdout`, or a file: one line of JSON for each request to the data port, without bodies, keys
    or queries. A relative path counts from the current folder. Move the file away to rotate it."""
    tracing: Tracing | None = None
    """OpenTelemetry; absent: none."""
    record: Record | None = None
    """The request log; absent: none."""
    shutdown: Shutdown = default(Shutdown())
    """What happens between SIGTERM and the end."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """`listen` as a list."""
        return (self.listen,) if isinstance(self.listen, str) else self.listen


def _is_redis(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in _REDIS_SCHEMES and parts.port != 0
    except ValueError:  # a port that is no number
        return False
