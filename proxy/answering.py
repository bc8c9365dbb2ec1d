"""From an entry or a flight to the reply in the form that this client asked for."""

import contextlib
import logging
from collections.abc import AsyncGenerator

from index.entry import Entry
from proxy.answer.control import fits
from proxy.answer.payload import Payload
from proxy.answer.replay import Replays, Unreplayable
from proxy.call import Call, Headers
from proxy.errors import UpstreamBroken, UpstreamError
from proxy.misses.flight import Head, Listener
from proxy.port import large
from proxy.reply import JSON, STREAM, Reply, error_event
from proxy.request.headers import passed_on, recorded

log = logging.getLogger("rejoinder.answering")

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which every client of server-sent events skips."""

_OF_THE_FORM = frozenset({b"content-type", b"cache-control", b"x-accel-buffering"})
_COME_BACK = frozenset({b"retry-after", b"retry-after-ms", b"x-should-retry"})


class Answering:
    """Gives answers their form."""

    def __init__(self, replays: Replays, *, keep_alive_s: float) -> None:
        """`keep_alive_s`: after this silence, or up to half as long again, a stream that has begun
        gets a comment."""
        self._replays = replays
        self._keep_alive_s = keep_alive_s

    def from_entry(self, entry: Entry, call: Call) -> Reply | None:
        """Replay a stored answer. None, which makes it a miss, when it cannot be read any more or
        put into this form, or varies by a header that says something else here."""
        payload = self._replays.read(entry.payload)
        if payload is None or (payload.varied and not fits(payload.varied, call.headers)):
            return None
        try:
            return self._from_payload(payload, call, payload.headers)
        except Unreplayable as fault:
            log.warning("%s: an entry is taken for a miss: %s", call.request_id, fault)
            return None

    async def from_flight(self, listener: Listener, call: Call, *, joined: bool) -> Reply | None:
        """Wait until the reply can begin, or for all of it where the client wants it plain.

        None where a joined flight brought nothing that can be given here: an answer that varies by
        a header, one that cannot be put into this form, or the refusal of somebody else's
        credential. The request then needs its own.

        The listener leaves by itself when the reply comes in pieces, at its end; in every other it
        has left when this returns. Raises UpstreamError and ClientLeft.
        """
        head = await listener.head()
        if joined and not head.suits(call):
            listener.leave()
            return None
        if head.streaming and call.stream:
            headers = (*STREAM, *rest_of(head, joined=joined))
            return Reply(status=head.status, headers=headers, body=self._live(listener, call))
        if head.in_pieces:
            return _in_pieces(listener, head, call, joined=joined)
        ending = await listener.ending()
        listener.leave()
        is_other_form = head.status < 400 and head.streaming is not call.stream
        if is_other_form and ending.payload is not None:
            # What cannot be put into this form goes out as it came.
            with contextlib.suppress(Unreplayable):
                return self._from_payload(ending.payload, call, rest_of(head, joined=joined))
        if is_other_form and joined:
            return None
        if ending.body is None:
            text = "a stream that was not asked for gave no whole answer"
            raise UpstreamBroken(text, upstream=head.upstream)
        headers = with_type(head, joined=joined)
        return Reply(status=head.status, headers=headers, body=ending.body)

    def _from_payload(self, payload: Payload, call: Call, headers: Headers) -> Reply:
        """A whole answer, streamed or plain, whichever way it was recorded; or `Unreplayable`."""
        if call.stream:
            body = self._replays.stream(payload, include_usage=call.include_usage)
            return Reply(status=200, headers=(*STREAM, *headers), body=body)
        return Reply(status=200, headers=(JSON, *headers), body=self._replays.plain(payload))

    async def _live(self, listener: Listener, call: Call) -> AsyncGenerator[bytes, None]:
        """The frames as they come, without the usage that this client did not ask for. Where they
        break off, the client is told so in its surface's own way before this raises."""
        num_frames = 0
        try:
            async for frames in listener.frames(silence_s=self._keep_alive_s):
                num_frames += len(frames)
                data = b"".join([f.data if call.include_usage else f.bare for f in frames])
                if data:
                    yield data
                elif not frames:
                    yield KEEP_ALIVE
        except UpstreamError as error:
            if not (isinstance(error, UpstreamBroken) and error.told):
                yield error_event(error, surface=call.surface, sequence_number=num_frames)
            raise
        finally:
            listener.leave()


def _in_pieces(listener: Listener, head: Head, call: Call, *, joined: bool) -> Reply | None:
    if joined and call.stream:
        listener.leave()
        return None
    headers = with_type(head, joined=joined)
    return Reply(status=head.status, headers=headers, body=large.pieces_for(listener))


def rest_of(head: Head, *, joined: bool) -> Headers:
    """The upstream's headers, but for those that belong to the form, which may be another here.

    Who joined gets those of a replay, since the others are about the request and the account of
    who asked; and with an error when to come back.
    """
    passed = passed_on(head.headers)
    if not joined:
        return tuple(pair for pair in passed if pair[0] not in _OF_THE_FORM)
    if head.status < 400:
        return recorded(head.headers)
    return recorded(head.headers) + tuple(pair for pair in passed if pair[0] in _COME_BACK)


def with_type(head: Head, *, joined: bool) -> Headers:
    """The same with the upstream's own type, for a body that is passed on as it came."""
    passed = passed_on(head.headers)
    kind = next((pair for pair in passed if pair[0] == b"content-type"), JSON)
    return (kind, *rest_of(head, joined=joined))
