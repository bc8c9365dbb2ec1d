"""Misses: the task of a flight, from the request to the upstream to the entry in the store."""

import contextlib
import functools
import logging
from collections.abc import AsyncIterator

import msgspec

from index.entry import Snapshot
from proxy.answer.grammar import DONE_FRAME, Frame
from proxy.answer.payload import Payload
from proxy.answer.recording import Complete, Recording, StreamRecorder, record_plain
from proxy.answer.replay import Unreplayable, plain
from proxy.call import Usage
from proxy.errors import UpstreamBroken, UpstreamError
from proxy.lookup.found import Found
from proxy.lookup.late import give_up
from proxy.misses.flight import Ending, Flight, Head
from proxy.misses.flights import Flights
from proxy.misses.keeping import Keeper
from proxy.misses.outgoing import Outgoing, head_of
from proxy.misses.turns import NoTurns, Turns
from proxy.port import large
from proxy.question import Question
from proxy.request.choices import num_choices
from proxy.upstreams.base import UpstreamResponse

log = logging.getLogger("rejoinder.forward")

_NO_SNAPSHOT = Snapshot(generation="", sequence=0)


class Boarded(msgspec.Struct, frozen=True, kw_only=True):
    """The flight that brings an answer; `joined` when another request started it."""

    flight: Flight
    joined: bool


class Forwarder:
    """Starts flights and fills them."""

    def __init__(
        self, *, flights: Flights, outgoing: Outgoing, keeper: Keeper, turns: Turns | NoTurns
    ) -> None:
        """`turns`: those of all replicas, for answers that they can share."""
        self._turns = turns
        self._flights = flights
        self._outgoing = outgoing
        self._keeper = keeper

    def board(self, question: Question, found: Found) -> Boarded:
        """Join the flight under way that answers this request too, or start one. Raises ClientError
        429 where the tenant has no tokens left for it."""
        shared = question.shares_flights and found.snapshot is not None
        if shared and found.snapshot is not None:
            flight = self._flights.join(
                question.key, snapshot=found.snapshot, tags=frozenset(question.tags)
            )
            if flight is not None:
                give_up(found.late)
                return Boarded(flight=flight, joined=True)
        _reserve(question)
        return Boarded(flight=self._start(question, found, shared=shared), joined=False)

    def board_alone(self, question: Question, found: Found) -> Boarded:
        """Start a flight that nobody joins: the one joined before brought nothing of use."""
        _reserve(question)
        return Boarded(flight=self._start(question, found, shared=False), joined=False)

    def refresh(self, question: Question, found: Found) -> None:
        """Make a new answer in the background, unless one is being made already."""
        if self._flights.has(question.key):
            give_up(found.late)
        else:
            self._start(question.beside(), found, shared=True).finish_alone = True

    def ask_beside(self, question: Question, found: Found) -> Flight:
        """Make an answer in the background that nobody joins or waits for. It is kept where `found`
        has a snapshot. Raises ClientError 429 as `board` does."""
        _reserve(question)
        flight = self._start(question.beside(), found, shared=False)
        flight.finish_alone = True
        return flight

    def _start(self, question: Question, found: Found, *, shared: bool) -> Flight:
        flight = Flight(
            [question.key],
            snapshot=found.snapshot or _NO_SNAPSHOT,
            tags=frozenset((*question.tags, *found.further_tags)),
            keeps_all=question.max_entry_bytes > 0,
        )
        flight.finish_alone = question.finishes_alone
        turns = self._turns if shared else NoTurns()
        fill = functools.partial(self._fill, question, found, turns)
        self._flights.start(flight, fill, open_to_others=shared)
        if found.late is not None:
            late = found.late
            assert flight.task is not None
            flight.task.add_done_callback(lambda _: give_up(late))
        return flight

    async def _fill(
        self, question: Question, found: Found, turns: Turns | NoTurns, flight: Flight
    ) -> None:
        try:
            async with turns.take(question) as made:
                if made is not None and _give(flight, made):
                    question.call.grant.release()
                    return
                response = await self._outgoing.send(question, snapshot=found.snapshot)
                async with contextlib.aclosing(response.body) as body:
                    await self._take(question, found, flight, response, body)
        except UpstreamError as error:
            if flight.head is None:
                question.call.grant.release()
            flight.end(Ending(error=error))
        except Exception:  # whatever it was, those who listen must not wait for ever
            log.exception("%s: an answer could not be passed on", question.call.request_id)
            fault = UpstreamBroken("the proxy failed while it passed the answer on", upstream="")
            flight.end(Ending(error=fault))

    async def _take(
        self,
        question: Question,
        found: Found,
        flight: Flight,
        response: UpstreamResponse,
        body: AsyncIterator[bytes],
    ) -> None:
        streaming = response.status < 400 and response.content_type == b"text/event-stream"
        head = head_of(question, response, streaming=streaming)
        if streaming:
            await self._stream(question, found, flight, response, body, head)
            return
        if response.status >= 400:
            question.call.grant.release()
        beginning = await large.read(body, max_entry_bytes=question.max_entry_bytes)
        if not beginning.is_whole:
            await self._keeper.keep(question, found, response, large.TOO_LARGE)
            await large.pour(flight, head, beginning, body)
            return
        whole = b"".join(beginning.pieces)
        recording = record_plain(
            question.call.surface,
            response.status,
            response.headers,
            whole,
            max_bytes=question.max_entry_bytes,
            num_choices=num_choices(question.call),
        )
        ending = await self._concluded(question, found, response, recording)
        flight.begin(head)
        flight.end(msgspec.structs.replace(ending, body=whole))

    async def _stream(
        self,
        question: Question,
        found: Found,
        flight: Flight,
        response: UpstreamResponse,
        body: AsyncIterator[bytes],
        head: Head,
    ) -> None:
        recorder = StreamRecorder(
            question.call.surface,
            response.status,
            response.headers,
            max_bytes=question.max_entry_bytes,
            num_choices=num_choices(question.call),
        )
        # The first event has come, or been waited for in vain (`proxy.upstreams.opening`).
        flight.begin(head)
        last: list[Frame] = []
        num_events = 0
        try:
            async for piece in body:
                frames = recorder.feed(piece)
                num_events += len(frames)
                if recorder.done:
                    # Held back until the entry is kept: who has the whole answer finds it in the
                    # cache.
                    last = frames
                    break
                await _pass_on(frames, flight, recorder)
        except UpstreamError:
            if not recorder.told_error:  # else the server has hung up after telling why
                raise
        finally:
            if recorder.usage is None:
                question.call.grant.uncounted(question.call.body, num_events)
        last += recorder.end()
        recording = recorder.finish()
        ending = await self._concluded(question, found, response, recording)
        if recorder.told_error or not recorder.done:
            # Never a clean end: not even where the server ends what it broke as if all were well.
            flight.append([frame for frame in last if frame.data != DONE_FRAME])
            flight.end(msgspec.structs.replace(ending, error=_broken(recorder, response)))
            return
        flight.append(last)
        flight.end(ending)

    async def _concluded(
        self, question: Question, found: Found, response: UpstreamResponse, recording: Recording
    ) -> Ending:
        """The answer has come to its end: it is paid for, and kept where nothing forbids it."""
        self._keeper.settle(question, recording.bill, upstream=response.upstream)
        not_kept = await self._keeper.keep(question, found, response, recording)
        return Ending(
            payload=recording.payload if isinstance(recording, Complete) else None,
            usage=recording.bill.counted or Usage(),
            stored=not_kept is None,
            not_kept="" if not_kept is None else not_kept.reason,
        )


def _give(flight: Flight, payload: Payload) -> bool:
    """The whole answer of another replica. False: it has no plain form."""
    try:
        body = plain(payload)
    except Unreplayable:
        return False
    flight.made_elsewhere = True
    flight.begin(
        Head(
            status=200,
            headers=payload.headers,
            streaming=False,
            upstream="",
            varied=payload.varied,
        )
    )
    flight.end(Ending(body=body, payload=payload, stored=True))
    return True


def _reserve(question: Question) -> None:
    question.call.grant.reserve(question.call.body, question.call.fields)


async def _pass_on(frames: list[Frame], flight: Flight, recorder: StreamRecorder) -> None:
    if not frames:
        return
    flight.append(frames)
    if not recorder.keeps:
        flight.forget_beginning()
        await flight.room()


def _broken(recorder: StreamRecorder, response: UpstreamResponse) -> UpstreamBroken:
    told = recorder.told_error
    text = "the stream told an error" if told else "the stream ended before its terminal event"
    return UpstreamBroken(text, upstream=response.upstream, told=told)
