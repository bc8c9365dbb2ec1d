"""Requests for embeddings, from decided question to answer.

split, find each -> all known: answered -> some missing: joined or asked for, then put together

All vectors of one answer come from one model of one upstream. Where what is known and what was made
do not (a fallback answered, a name now leads to another model), where the upstream's answer cannot
be taken apart, and where it refuses what it was asked for (its words may name an input by number),
the whole batch is asked for as the client wrote it and passed on as it comes.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from proxy.answering import rest_of, with_type
from proxy.deciding import Decider
from proxy.embeddings.lookup import Batch, Piece, look_up, rescued, still_known
from proxy.embeddings.making import Maker, Making
from proxy.embeddings.part import Encoding, Part, answer_of
from proxy.errors import UpstreamError
from proxy.lookup.cache import Cache
from proxy.lookup.servable import is_failure, not_cached, wants_refresh
from proxy.misses.flight import Ending, Flight, Head, Listener
from proxy.outcome import BatchHit, BatchMiss, word
from proxy.port import large
from proxy.port.client import Client
from proxy.question import Question
from proxy.reply import JSON, Answer, Reply, of_upstream_error

_ABOUT_THE_INPUT = frozenset({400, 413, 422})
"""Statuses of refusals that may be about one input, perhaps another request's."""


class Batches:
    """One request for embeddings after the other."""

    def __init__(self, *, decider: Decider, cache: Cache, maker: Maker) -> None:
        self._decider = decider
        self._cache = cache
        self._maker = maker

    async def answer(self, question: Question, client: Client) -> Answer:
        """As `Pipeline.answer`."""
        batch = await look_up(self._cache, self._decider.pieces(question))
        if not batch.missing and _agree(piece.part for piece in batch.known):
            due = [piece for piece in batch.known if piece.hit and wants_refresh(piece.hit)]
            self._maker.refresh(question, due)
            return _all_known(question, batch)
        if question.call.directives.only_if_cached:
            return Answer(reply=not_cached(), outcome=_miss(question, batch, None))
        making = self._maker.board(question, batch.missing)
        reply = await self._made(question, batch, making, client)
        if reply is None:
            making = self._maker.board_whole(question, [batch.pieces[key] for key in batch.order])
            batch = batch.without_hits()
            reply = await self._made(question, batch, making, client)
            assert reply is not None
        if is_failure(reply):
            stale_batch = await rescued(self._cache, batch)
            if stale_batch is not None and _agree(piece.part for piece in stale_batch.known):
                return _all_known(question, stale_batch)
        return Answer(reply=reply, outcome=_miss(question, batch, making), flight=making.own)

    async def _made(
        self, question: Question, batch: Batch, making: Making, client: Client
    ) -> Reply | None:
        """The reply when all flights have landed. None: not all of it can be put together."""
        listeners = [flight.listen() for flight in making.flights]

        def leave() -> None:
            for listener in listeners:
                listener.leave()

        client.when_gone(leave)
        own = making.own
        is_all_own = own is not None and list(own.keys) == list(batch.order)
        try:
            heads = [await listener.head() for listener in listeners]
            if any(head.in_pieces for head in heads):
                return _in_pieces(listeners.pop(), heads[0], client) if is_all_own else None
            endings = {
                flight: await listener.ending()
                for flight, listener in zip(making.flights, listeners, strict=True)
            }
        except UpstreamError as error:
            return of_upstream_error(error)
        finally:
            leave()
        if own is not None and is_all_own:
            return _as_it_came(own, joined=False)
        known = await still_known(self._cache, batch)
        return None if known is None else _put_together(question, known, making, endings)


def _in_pieces(listener: Listener, head: Head, client: Client) -> Reply:
    """An answer that is too large to be taken apart. The listener leaves at its end."""
    client.when_gone(listener.leave)
    headers = with_type(head, joined=False)
    return Reply(status=head.status, headers=headers, body=large.pieces_for(listener))


def _as_it_came(flight: Flight, *, joined: bool) -> Reply:
    head, ending = flight.head, flight.ending
    assert head is not None
    assert ending is not None
    assert ending.body is not None
    return Reply(status=head.status, headers=with_type(head, joined=joined), body=ending.body)


def _put_together(
    question: Question, batch: Batch, making: Making, endings: Mapping[Flight, Ending]
) -> Reply | None:
    for flight in endings:
        head, joined = flight.head, flight is not making.own
        assert head is not None
        if joined and not head.suits(question.call):
            return None
        if head.status >= 400:
            about_input = head.status in _ABOUT_THE_INPUT
            return None if about_input else _as_it_came(flight, joined=joined)
    parts = {piece.key: piece.part for piece in batch.known}
    for ending in endings.values():
        parts |= ending.parts
    ordered = [part for part in map(parts.get, batch.order) if part is not None]
    if len(ordered) != len(batch.order) or not _agree(ordered):
        return None
    first = making.flights[0].head
    assert first is not None
    body = answer_of(ordered, _encoding(question))
    headers = rest_of(first, joined=making.own is None)
    return Reply(status=first.status, headers=(JSON, *headers), body=body)


def _all_known(question: Question, batch: Batch) -> Answer:
    parts = [batch.pieces[key].part for key in batch.order]
    known = [part for part in parts if part is not None]
    body = answer_of(known, _encoding(question))
    hits = tuple(piece.hit for piece in batch.known if piece.hit is not None)
    reply = Reply(status=200, headers=(JSON, *known[-1].headers), body=body)
    return Answer(reply=reply, outcome=BatchHit(hits=hits))


def _miss(question: Question, batch: Batch, making: Making | None) -> BatchMiss:
    own = None if making is None else making.own
    hits = tuple(piece.hit for piece in batch.known if piece.hit is not None)
    forward = "partial" if hits else "uri-miss"
    if not question.eligibility.read:
        forward = "request"
    elif any(piece.found.stale is not None for piece in batch.missing):
        forward = "stale"
    return BatchMiss(
        hits=hits,
        num_joined=0 if making is None else len(making.joined),
        num_sent=0 if own is None else len(set(own.keys)),
        key=batch.only_key,
        forward=forward,
        reasons=tuple(dict.fromkeys(chain.from_iterable(map(_reasons, batch.missing)))),
        num_tokens=0 if making is None else making.num_tokens,
        stored=own is not None and own.ending is not None and own.ending.stored,
    )


def _reasons(piece: Piece) -> tuple[str, ...]:
    hit = piece.found.hit
    if hit is None or piece.question.serves:
        return piece.found.reasons
    return (f"shadow-{word(hit)}",)


def _agree(parts: Iterable[Part | None]) -> bool:
    """All of one model of one upstream."""
    return len({(part.upstream, part.model) for part in parts if part is not None}) <= 1


def _encoding(question: Question) -> Encoding:
    return "base64" if question.call.fields.get("encoding_format") == "base64" else "float"
