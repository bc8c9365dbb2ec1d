"""What became of a request, and how the answer says so.

`Cache-Status` follows RFC 9211; `X-Cache` is one word for people and tests.
"""

import math
from typing import TypeAlias, assert_never

import msgspec

from index.audit.standing import Standing
from index.entry import Entry
from proxy.auditing.tier import Mark
from proxy.call import Headers

_X_CACHE = {
    word: (b"x-cache", word.encode())
    for word in ("exact", "semantic", "stale", "coalesced", "miss", "bypass")
}


class ExactHit(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh entry of the same key."""

    entry: Entry
    age_s: float
    ttl_s: float
    is_due: bool = False
    """It is made again behind this reader's back, before it expires."""


class SemanticHit(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh entry of the same scope whose question means the same."""

    entry: Entry
    age_s: float
    ttl_s: float
    similarity: float
    mark: Mark | None = None
    """For its audit; None where nothing is audited."""


class StaleHit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry past its time that the policy or the request allows. `reason` says which rule."""

    entry: Entry
    age_s: float
    ttl_s: float
    """Negative: how long it has been stale."""
    reason: str


class Coalesced(msgspec.Struct, frozen=True, kw_only=True):
    """Joined an identical request in flight."""

    key: str


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """A stored question that was near, and why its answer was not given."""

    key: str
    prompt: str
    similarity: float
    reason: str


class Miss(msgspec.Struct, frozen=True, kw_only=True):
    """Looked up and not served. `forward` is RFC 9211's `fwd` word; `detail` says more."""

    key: str
    forward: str
    detail: tuple[str, ...] = ()
    near: tuple[Near, ...] = ()
    """Best first."""
    stored: bool | None = None
    """None: not known when the answer began."""


class Bypass(msgspec.Struct, frozen=True, kw_only=True):
    """Not looked up."""

    reasons: tuple[str, ...]


REFUSED = Bypass(reasons=("refused",))
"""The request was answered with an error before anything else was done."""

Hit: TypeAlias = ExactHit | SemanticHit | StaleHit


class BatchHit(msgspec.Struct, frozen=True, kw_only=True):
    """Embeddings of which all inputs were known: one hit for each different input."""

    hits: tuple[Hit, ...]

    @property
    def stale(self) -> StaleHit | None:
        """The first that is not fresh."""
        return next((hit for hit in self.hits if isinstance(hit, StaleHit)), None)


class BatchMiss(msgspec.Struct, frozen=True, kw_only=True):
    """Embeddings of which not all inputs were known. Counts are of different inputs."""

    hits: tuple[Hit, ...]
    """Those that were known; empty where the whole batch was sent after all."""
    num_joined: int
    """Those that another request in flight was already asking for."""
    num_sent: int
    key: str
    """Of the only input; empty when there are several."""
    forward: str
    reasons: tuple[str, ...] = ()
    num_tokens: int = 0
    """Of the others, as they were counted."""
    stored: bool = False

    @property
    def collapsed(self) -> bool:
        """Others were asking for all that was missing."""
        return self.num_joined > 0 and not self.num_sent


Outcome: TypeAlias = Hit | Coalesced | Miss | Bypass | BatchHit | BatchMiss


def word(outcome: Outcome) -> str:
    """The outcome in one word: the value of `X-Cache` and of the metrics' label."""
    match outcome:
        case ExactHit():
            return "exact"
        case SemanticHit():
            return "semantic"
        case StaleHit():
            return "stale"
        case Coalesced():
            return "coalesced"
        case Miss():
            return "miss"
        case Bypass():
            return "bypass"
        case BatchHit(stale=stale):
            return "exact" if stale is None else "stale"
        case BatchMiss(collapsed=collapsed):
            return "coalesced" if collapsed else "miss"
        case _:
            assert_never(outcome)


def cache_status(outcome: Outcome) -> str:
    """The value of `Cache-Status` (RFC 9211, section 2)."""
    match outcome:
        case ExactHit(entry=entry, ttl_s=ttl_s):
            return f'rejoinder; hit; ttl={int(ttl_s)}; key="{entry.key}"; detail=exact'
        case SemanticHit(entry=entry, ttl_s=ttl_s, mark=mark):
            shown = "" if mark is None else f"; bound={_bound(mark.standing)}"
            return f'rejoinder; hit; ttl={int(ttl_s)}; key="{entry.key}"; detail=semantic{shown}'
        case StaleHit(entry=entry, ttl_s=ttl_s, reason=reason):
            return f'rejoinder; hit; ttl={int(ttl_s)}; key="{entry.key}"; detail={reason}'
        case Coalesced(key=key):
            return f'rejoinder; fwd=uri-miss; collapsed; key="{key}"'
        case Miss(key=key, forward=forward, detail=detail, stored=stored):
            kept = "; stored" if stored else ""
            return f'rejoinder; fwd={forward}{kept}; key="{key}"{_detail(detail)}'
        case Bypass(reasons=reasons):
            return f"rejoinder; fwd=bypass{_detail(reasons)}"
        case BatchHit(hits=hits, stale=stale):
            shown = f'; key="{hits[0].entry.key}"' if len(hits) == 1 else ""
            ttl_s = min(hit.ttl_s for hit in hits)
            how = "exact" if stale is None else stale.reason
            return f"rejoinder; hit; ttl={int(ttl_s)}{shown}; detail={how}"
        case BatchMiss():
            return _of_batch(outcome)
        case _:
            assert_never(outcome)


def reasons_of(outcome: Outcome) -> tuple[str, ...]:
    """Why it was not answered from the cache; empty when it was."""
    match outcome:
        case ExactHit() | SemanticHit() | StaleHit() | BatchHit() | Coalesced():
            return ()
        case Miss(detail=reasons) | Bypass(reasons=reasons) | BatchMiss(reasons=reasons):
            return reasons
        case _:
            assert_never(outcome)


def headers_of(outcome: Outcome) -> Headers:
    """The headers that tell a client what became of its request."""
    status = (b"cache-status", cache_status(outcome).encode())
    match outcome:
        case ExactHit(age_s=age_s):
            return status, _X_CACHE["exact"], (b"age", b"%d" % age_s)
        case StaleHit(age_s=age_s):
            return status, _X_CACHE["stale"], (b"age", b"%d" % age_s)
        case SemanticHit(age_s=age_s, similarity=similarity):
            near = (b"x-cache-similarity", f"{similarity:.4f}".encode())
            return status, _X_CACHE["semantic"], (b"age", b"%d" % age_s), near
        case BatchHit(hits=hits):
            age_s = max(hit.age_s for hit in hits)
            return status, _X_CACHE[word(outcome)], (b"age", b"%d" % age_s)
        case _:
            return status, _X_CACHE[word(outcome)]


def _of_batch(miss: BatchMiss) -> str:
    collapsed = "; collapsed" if miss.collapsed else ""
    kept = "; stored" if miss.stored else ""
    shown = f'; key="{miss.key}"' if miss.key else ""
    counts = f"known={len(miss.hits)}", f"joined={miss.num_joined}", f"sent={miss.num_sent}"
    detail = _detail((*counts, *miss.reasons))
    return f"rejoinder; fwd={miss.forward}{collapsed}{kept}{shown}{detail}"


def _bound(standing: Standing) -> str:
    """No more answers by meaning than this share are wrong, rounded up to an RFC 8941 decimal."""
    return f"{math.ceil(standing.upper * 1000) / 1000:.3f}" if standing.is_proven else "unproven"


def _detail(reasons: tuple[str, ...]) -> str:
    # An RFC 8941 token where one word is enough, else a string.
    if not reasons:
        return ""
    text = ",".join(reasons)
    return (
        f"; detail={text}"
        if text.replace("-", "").replace("_", "").isalnum()
        else f'; detail="{text}"'
    )
