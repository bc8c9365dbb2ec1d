"""What a lookup knows of a question."""

import asyncio

import msgspec

from index.entry import Entry, Snapshot
from index.semantic import Sought
from proxy.answer.freshness import Stale
from proxy.outcome import ExactHit, Near, SemanticHit


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache knows of a question.

    `hit` may be served as it is. `stale` may be served in the cases that its freshness names.
    Without a `snapshot` (the store failed) the new answer cannot be kept.
    """

    hit: ExactHit | SemanticHit | None = None
    withheld: SemanticHit | None = None
    """Would be the hit if its tier served at the time, or had not been tightened
    (`index.audit.standing`)."""
    stale: Entry | None = None
    staleness: Stale | None = None
    snapshot: Snapshot | None = None
    further_tags: tuple[str, ...] = ()
    """Of an entry that is there but lacks a tag of the request: the new one carries both."""
    embedding: bytes = b""
    embedder: str = ""
    """Identity of what made it."""
    late: asyncio.Task[Sought] | None = None
    """The search by meaning, where it missed its deadline."""
    barred: str | None = None
    """Why the question is volatile after all, as its embedding tells: it is to be forwarded as if
    there were no cache."""
    reasons: tuple[str, ...] = ()
    """Why nothing is served, in the order of the lookups."""
    near: tuple[Near, ...] = ()
    """What was found by meaning and refused, best first."""

    def embedded(self, embedding: bytes, embedder: str) -> "Found":
        """With the embedding of its question."""
        return msgspec.structs.replace(self, embedding=embedding, embedder=embedder, late=None)

    def because(self, *reasons: str) -> "Found":
        """With further reasons."""
        return msgspec.structs.replace(self, reasons=self.reasons + reasons)
