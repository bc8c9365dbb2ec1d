"""The inputs of a batch, and what the cache knows of each."""

from collections.abc import Sequence
from typing import Any

import msgspec

from proxy.answer import payload as payloads
from proxy.answer.control import fits
from proxy.embeddings.part import Part, read
from proxy.lookup.cache import Cache
from proxy.lookup.found import Found
from proxy.lookup.servable import rescue, servable
from proxy.outcome import Hit
from proxy.question import Question


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One input, however often it occurs in its batch."""

    question: Question
    """As if it had been asked for alone."""
    found: Found
    hit: Hit | None
    part: Part | None
    """What is served of the hit; None exactly when `hit` is."""

    @property
    def key(self) -> str:
        """Under which it is kept."""
        return self.question.key

    @property
    def text(self) -> Any:
        """The input itself: a string, or token ids."""
        return self.question.call.fields["input"]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A request for embeddings, split up."""

    order: tuple[str, ...]
    """The key of each input, repeated ones too."""
    pieces: dict[str, Piece]

    @property
    def known(self) -> list[Piece]:
        """Those that can be served."""
        return [piece for piece in self.pieces.values() if piece.hit is not None]

    @property
    def missing(self) -> list[Piece]:
        """Those that have to be made."""
        return [piece for piece in self.pieces.values() if piece.hit is None]

    def without_hits(self) -> "Batch":
        """The batch as if nothing of it were known."""
        pieces = {
            key: msgspec.structs.replace(piece, hit=None, part=None)
            for key, piece in self.pieces.items()
        }
        return msgspec.structs.replace(self, pieces=pieces)

    @property
    def only_key(self) -> str:
        """The key of the only input; empty when there are several."""
        return self.order[0] if len(self.pieces) == 1 else ""


async def look_up(cache: Cache, pieces: Sequence[Question]) -> Batch:
    """Find each different input once."""
    order = tuple(piece.key for piece in pieces)
    found: dict[str, Piece] = {}
    for question in pieces:
        if question.key not in found:
            found[question.key] = _piece(question, await cache.find(question))
    return Batch(order=order, pieces=found)


async def still_known(cache: Cache, batch: Batch) -> Batch | None:
    """The batch with what is known of it now: much may be purged while the rest is made. None when
    some of it is gone."""
    pieces = dict(batch.pieces)
    for piece in batch.known:
        now = _piece(piece.question, await cache.find_exact(piece.question))
        if now.found.snapshot == piece.found.snapshot:
            return batch  # No purge has come since the first look, and so none since the others.
        if now.hit is None:
            return None
        pieces[piece.key] = now
    return msgspec.structs.replace(batch, pieces=pieces)


async def rescued(cache: Cache, batch: Batch) -> Batch | None:
    """The batch as it is known without the upstream, stale answers too; None when that is not all
    of it. Looked up again: some may have been purged while the upstream failed."""
    pieces: dict[str, Piece] = {}
    for piece in batch.pieces.values():
        found = await cache.find_exact(piece.question)
        stale = rescue(piece.question, found)
        now = _piece(piece.question, found, instead=stale)
        if now.hit is None:
            return None
        pieces[piece.key] = now
    return msgspec.structs.replace(batch, pieces=pieces)


def _piece(question: Question, found: Found, *, instead: Hit | None = None) -> Piece:
    """`instead`: what is served where nothing else can be."""
    hit = servable(question, found) or instead
    part = None if hit is None else _part(hit, question)
    if found.hit is not None and part is None and _part(found.hit, question) is None:
        found = msgspec.structs.replace(found, hit=None, reasons=("vary",))
    return Piece(question=question, found=found, hit=hit if part else None, part=part)


def _part(hit: Hit, question: Question) -> Part | None:
    """None when the entry cannot be read any more, or varies by a header that is another here."""
    payload = payloads.decode(hit.entry.payload)
    if payload is None or not fits(payload.varied, question.call.headers):
        return None
    return read(payload.body, upstream=hit.entry.upstream, headers=payload.headers)
