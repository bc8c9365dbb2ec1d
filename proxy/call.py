"""The values that flow through the rooms, in the order in which they come into being."""

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.observing.timing import Timing

Headers = tuple[tuple[bytes, bytes], ...]
"""Raw headers as ASGI gives them: names in lower case."""


class Surface(enum.Enum):
    """The endpoints whose answers can be kept."""

    CHAT = "/chat/completions"
    COMPLETIONS = "/completions"
    EMBEDDINGS = "/embeddings"
    RESPONSES = "/responses"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. `credential_id` is a digest of the credential, never the credential."""

    tenant: str
    credential_id: str


class Directives(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of the cache, from headers and the body's `cache` object. Seconds."""

    no_cache: bool = False
    """Make a new answer and keep it."""
    no_store: bool = False
    """Neither read nor write."""
    only_if_cached: bool = False
    max_age_s: float | None = None
    max_stale_s: float | None = None
    ttl_s: float | None = None
    namespace: str = ""
    tags: tuple[str, ...] = ()
    semantic: bool = True


class Grant:
    """What a request may use of its tenant's limits (`proxy.tenancy.quotas`); this one is without.

    Not frozen, unlike the rest of this file: it is settled when the upstream has counted.
    """

    def reserve(self, body: bytes, fields: Mapping[str, object]) -> None:
        """Before an upstream is asked. The first time counts. Raises ClientError 429."""

    def charge(self, tokens: int) -> None:
        """What an upstream counted; the first time it takes the place of what was reserved."""

    def uncounted(self, body: bytes, num_events: int) -> None:
        """An answer was made, or a part of one, that no upstream counted: of a stream an event is
        about a token. What was reserved stands where it is more."""

    def release(self) -> None:
        """No tokens were made: what was reserved is free again, unless it was charged."""

    def headers(self) -> Headers:
        """What is left, for the client; empty without limits."""
        return ()


UNLIMITED = Grant()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was received and decoded."""

    request_id: str
    caller: Caller
    surface: Surface
    path: str
    """Below `/v1`, as the client wrote it."""
    query: bytes
    headers: Headers
    credential: bytes | None
    body: bytes
    """As it is forwarded: the client's bytes, but for our own `cache` object."""
    fields: dict[str, Any]
    """The body decoded, without our own `cache` object."""
    model: str
    stream: bool
    include_usage: bool
    """The client asked for usage at the end of its stream."""
    directives: Directives
    received_at: float
    """Unix seconds."""
    grant: Grant = UNLIMITED
    timing: Timing = msgspec.field(default_factory=Timing)
    """Filled on the way: not frozen either."""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer is found again. 64 hex digits each; `scope` may be empty (exact only)."""

    key: str
    scope: str
    prompt: str
    """The last user text, which alone is matched by meaning."""
    canonical: bytes


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the upstream counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
