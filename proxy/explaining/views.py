"""What `explain` answers. Times are Unix seconds."""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from proxy.explaining.difference import Difference
from proxy.observing.seen import Seen


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """A word of `Cache-Status` or the metrics, and what it means."""

    word: str
    meaning: str


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A field that does not count."""

    field: str
    reason: str


class RouteView(msgspec.Struct, frozen=True, kw_only=True):
    """Where a miss goes."""

    name: str
    upstreams: tuple[str, ...]
    model: str
    mode: str
    policy: str | None


class MayView(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache may do with the request, by its words alone."""

    read: bool
    write: bool
    semantic: bool
    reasons: tuple[Reason, ...]


class MovedTag(msgspec.Struct, frozen=True, kw_only=True):
    """A tag that was purged; `covers`: after the stored answer's request came in."""

    tag: str
    sequence: int
    soft: bool
    covers: bool


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    """The stored answer under the key, usable or not."""

    created_at: float
    expires_at: float
    keep_until: float
    tenant: str
    model: str
    upstream: str
    tags: tuple[str, ...]
    sequence: int
    """Purges that it has seen."""
    input_tokens: int
    output_tokens: int


class ExactView(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored under the key."""

    state: str
    """`fresh`, `stale`, or why it cannot be used: `absent`, `expired`, `purged`, `lacks_tag`, …"""
    meaning: str
    entry: EntryView | None
    age_s: float | None = None
    ttl_s: float | None = None
    """What remains; negative where it is stale."""
    sequence: int
    """Purges so far."""
    moved: tuple[MovedTag, ...] = ()


class NearView(msgspec.Struct, frozen=True, kw_only=True):
    """A stored question of the same scope."""

    key: str
    prompt: str
    similarity: float
    accepted: bool
    reason: str
    """The guard or rule that refused it; empty where it was accepted."""
    meaning: str
    asked: float | None
    """The least similarity at which the two would share an answer; None where none suffices."""
    why: tuple[Reason, ...] = ()
    """Why so much is asked for: what their words say, what audits ask for on top, and the embedder
    whose similarities are worth less."""


class TierView(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy's answers by meaning have come to."""

    state: str
    raised: float
    """More similarity is asked for by so much, since audits found wrong answers."""
    bound: float | Literal["unproven"]
    """No more of its hits than this share are wrong, where audits have shown that it is no more
    than the policy allows."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request became what it did when it came; what it stored itself since plays no part."""

    reasons: tuple[Reason, ...] = ()
    """Why it was no hit."""
    near: tuple[NearView, ...] = ()
    """Stored questions that were near and whose answers were not given, why not, and the
    similarity that would be asked for now."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a fresh answer takes, about."""

    input_tokens: int
    output_tokens: int
    basis: str
    """`stored`: as the stored answer did; `guess`: four bytes a token, and the most asked for."""
    amount: float | None = None
    """By the price table; None where it has no such model."""
    currency: str = ""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides about one request, as if it came now. Nothing was served or changed."""

    now: float
    request_id: str = ""
    seen: Seen | None = None
    """What became of it when it came."""
    past: Past | None = None
    """And why."""
    tenant: str
    surface: str
    route: RouteView
    may: MayView
    outcome: str
    """What it would get now: `exact`, `semantic`, `stale`, `miss` or `bypass`; in shadow mode what
    it would get if that served."""
    reasons: tuple[Reason, ...] = ()
    """Why it is not a hit."""
    canonical: Raw | UnsetType = UNSET
    """What is compared: equal for two requests exactly where the upstream is asked the same."""
    left_out: tuple[LeftOut, ...] = ()
    folded: tuple[Difference, ...] = ()
    """What `normalize` and `strip` changed in the texts: `a` before, `b` after."""
    parts: dict[str, str] = {}
    """What else goes into the key, and into the scope."""
    key: str = ""
    scope: str = ""
    prompt: str = ""
    tags: tuple[str, ...] = ()
    """An answer must carry these: the request and the policy's rules name them."""
    implicit_tags: tuple[str, ...] = ()
    """A new answer carries them, too."""
    exact: ExactView | None = None
    inputs: tuple[ExactView, ...] = ()
    """Of embeddings with several inputs: each by itself."""
    near: tuple[NearView, ...] = ()
    tier: TierView | None = None
    cost: Cost


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Why two requests do or do not share an answer."""

    share: str
    """`exact`: one key; `semantic`: one scope, and the two texts are accepted; `no`."""
    meaning: str
    parts: tuple[Difference, ...]
    """Of what goes into key and scope beside the words."""
    first: Difference | None
    """The first place where the canonical requests differ."""
    differences: tuple[Difference, ...]
    near: NearView | None = None
    """B's text beside A's, where all else is the same."""
    a: Explanation
    b: Explanation
