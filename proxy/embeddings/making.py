"""What is missing of a batch: joined where another request already asks for it, else asked for in
one request of its own."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from index.entry import Snapshot
from proxy.answer.grammar import Discarded, read_bill, read_usage
from proxy.answer.payload import Payload
from proxy.answer.recording import Complete, Recording
from proxy.call import Surface, Usage
from proxy.embeddings.lookup import Piece
from proxy.embeddings.part import Part, alone, parts_of
from proxy.errors import UpstreamBroken, UpstreamError
from proxy.misses.flight import Ending, Flight
from proxy.misses.flights import Flights
from proxy.misses.keeping import Keeper, NotKept
from proxy.misses.outgoing import Outgoing, head_of
from proxy.port import large
from proxy.question import Question
from proxy.request.headers import recorded
from proxy.upstreams.base import UpstreamResponse

log = logging.getLogger("rejoinder.forward")

_NO_SNAPSHOT = Snapshot(generation="", sequence=0)


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """The flights that bring what is missing: `own` for what nobody else was asking for."""

    own: Flight | None
    joined: Mapping[str, Flight]
    """By the key of the input."""

    @property
    def flights(self) -> tuple[Flight, ...]:
        """Each once, its own first."""
        own = () if self.own is None else (self.own,)
        return tuple(dict.fromkeys((*own, *self.joined.values())))

    @property
    def num_tokens(self) -> int:
        """Of what was made, as the upstream counted it; 0 where it did not, or has not yet."""
        own = None if self.own is None else self.own.ending
        num_own = 0 if own is None else own.usage.input_tokens
        return num_own + sum(_num_tokens(key, flight) for key, flight in self.joined.items())


class Maker:
    """Starts the flights of embeddings and fills them."""

    def __init__(self, *, flights: Flights, outgoing: Outgoing, keeper: Keeper) -> None:
        self._flights = flights
        self._outgoing = outgoing
        self._keeper = keeper

    def board(self, question: Question, missing: Sequence[Piece]) -> Making:
        """Join and start what `missing` needs. Raises ClientError 429 where the tenant has no
        tokens left for it."""
        joined: dict[str, Flight] = {}
        if question.shares_flights:
            for piece in missing:
                flight = self._joinable(piece)
                if flight is not None:
                    joined[piece.key] = flight
        rest = [piece for piece in missing if piece.key not in joined]
        own = None
        if rest:
            question.call.grant.reserve(question.call.body, question.call.fields)
            own = self._start(question, rest, shared=question.shares_flights)
        return Making(own=own, joined=joined)

    def board_whole(self, question: Question, inputs: Sequence[Piece]) -> Making:
        """Ask for everything at once, as the client wrote it, and share it with nobody."""
        question.call.grant.reserve(question.call.body, question.call.fields)
        return Making(own=self._start(question, inputs, shared=False), joined={})

    def refresh(self, question: Question, stale: Sequence[Piece]) -> None:
        """Make these again in the background, but for those that are being made already."""
        pieces = [piece for piece in stale if not self._flights.has(piece.key)]
        if pieces:
            self._start(question.beside(), pieces, shared=True).finish_alone = True

    def _joinable(self, piece: Piece) -> Flight | None:
        if piece.found.snapshot is None:
            return None
        tags = frozenset(piece.question.tags)
        return self._flights.join(piece.key, snapshot=piece.found.snapshot, tags=tags)

    def _start(self, question: Question, pieces: Sequence[Piece], *, shared: bool) -> Flight:
        snapshots = {piece.found.snapshot for piece in pieces}
        snapshot = snapshots.pop() if len(snapshots) == 1 else None
        flight = Flight(
            [piece.key for piece in pieces],
            snapshot=snapshot or _NO_SNAPSHOT,
            tags=frozenset(question.tags),
            keeps_all=True,
        )
        flight.finish_alone = question.finishes_alone
        fill = functools.partial(self._fill, question, pieces)
        self._flights.start(flight, fill, open_to_others=shared and snapshot is not None)
        return flight

    async def _fill(self, question: Question, pieces: Sequence[Piece], flight: Flight) -> None:
        try:
            response = await self._outgoing.send(question, replace=_fewer(question, pieces))
            async with contextlib.aclosing(response.body) as body:
                await self._take(question, pieces, flight, response, body)
        except UpstreamError as error:
            if flight.head is None:
                question.call.grant.release()
            flight.end(Ending(error=error))
        except Exception:  # whatever it was, those who listen must not wait for ever
            log.exception("%s: embeddings could not be passed on", question.call.request_id)
            fault = UpstreamBroken("the proxy failed while it passed the answer on", upstream="")
            flight.end(Ending(error=fault))

    async def _take(
        self,
        question: Question,
        pieces: Sequence[Piece],
        flight: Flight,
        response: UpstreamResponse,
        body: AsyncIterator[bytes],
    ) -> None:
        head = head_of(question, response, streaming=False)
        beginning = await large.read(body, max_entry_bytes=question.max_entry_bytes)
        if not beginning.is_whole:
            await large.pour(flight, head, beginning, body)
            return
        if response.status >= 400:
            question.call.grant.release()
        whole = b"".join(beginning.pieces)
        parts = _made(pieces, response, whole)
        bill = read_bill(whole)
        self._keeper.settle(question, bill, upstream=response.upstream)
        not_kept = await self._keep(pieces, response, parts)
        ending = Ending(
            body=whole,
            parts=parts,
            usage=bill.counted or Usage(),
            stored=not_kept is None,
            not_kept="" if not_kept is None else not_kept.reason,
        )
        flight.begin(head)
        flight.end(ending)

    async def _keep(
        self, pieces: Sequence[Piece], response: UpstreamResponse, parts: Mapping[str, Part]
    ) -> NotKept | None:
        """None when all of it is stored."""
        made = {piece.key: piece for piece in pieces if piece.key in parts}
        keeping = []
        for key, piece in made.items():
            limit = piece.question.max_entry_bytes
            recording = _recording(parts[key], response, max_bytes=limit)
            keeping.append(self._keeper.keep(piece.question, piece.found, response, recording))
        if not made:
            return NotKept(word="discarded", reason="the answer is not one vector for each input")
        refused = filter(None, await asyncio.gather(*keeping))
        return next(refused, None)


def _made(pieces: Sequence[Piece], response: UpstreamResponse, body: bytes) -> dict[str, Part]:
    if response.status != 200:
        return {}
    parts = parts_of(body, [piece.text for piece in pieces], upstream=response.upstream)
    return {piece.key: part for piece, part in zip(pieces, parts or (), strict=False)}


def _num_tokens(key: str, flight: Flight) -> int:
    part = None if flight.ending is None else flight.ending.parts.get(key)
    usage = read_usage(part.usage) if part is not None and part.usage else None
    return 0 if usage is None else usage.input_tokens


def _recording(part: Part, response: UpstreamResponse, *, max_bytes: int) -> Recording:
    body = alone(part)
    if len(body) > max_bytes:
        return Discarded(reason=f"larger than {max_bytes} bytes")
    usage = read_usage(part.usage) if part.usage else None
    payload = Payload(
        surface=Surface.EMBEDDINGS,
        headers=recorded(response.headers),
        body=body,
        usage=usage or Usage(),
        usage_known=usage is not None,
        model=part.model,
        has_tool_calls=False,
    )
    return Complete(payload=payload, usage=payload.usage, model=part.model, finish_reasons=())


def _fewer(question: Question, pieces: Sequence[Piece]) -> dict[str, bytes]:
    """The member `input` with these only; nothing to replace when they are what it holds."""
    written = question.call.fields["input"]
    inputs = [piece.text for piece in pieces]
    if inputs == written or inputs == [written]:
        return {}
    return {"input": msgspec.json.encode(inputs)}
