"""From an entry or a flight to the reply in the form that this client asked for."""

from collections.abc import AsyncGenerator

from index.entry import Entry
from proxy.answer import payload as payloads
from proxy.answer import replay
from proxy.answer.payload import Payload
from proxy.call import Call, Headers
from proxy.errors import UpstreamBroken
from proxy.flights import Head, Listener
from proxy.reply import JSON, STREAM, Reply
from proxy.request.headers import passed_on

_OF_THE_FORM = frozenset({b"content-type", b"cache-control", b"x-accel-buffering"})


def from_entry(entry: Entry, call: Call) -> Reply | None:
    """Replay a stored answer. None when it cannot be read any more, which makes it a miss."""
    payload = payloads.decode(entry.payload)
    if payload is None:
        return None
    return from_payload(payload, call, payload.headers)


def from_payload(payload: Payload, call: Call, headers: Headers) -> Reply:
    """A whole answer, streamed or plain, whichever way it was recorded."""
    if call.stream:
        body = replay.stream(payload, include_usage=call.include_usage)
        return Reply(status=200, headers=(*STREAM, *headers), body=body)
    return Reply(status=200, headers=(JSON, *headers), body=replay.plain(payload))


async def from_flight(listener: Listener, call: Call) -> Reply:
    """Wait until the reply can begin, or for all of it where the client wants it plain.

    The listener leaves by itself when the reply is a stream, at its end; in every other case it has
    left when this returns. Raises UpstreamError and ClientLeft.
    """
    head = await listener.head()
    if head.streaming and call.stream:
        headers = (*STREAM, *_rest(head))
        return Reply(status=head.status, headers=headers, body=_live(listener, call))
    ending = await listener.ending()
    listener.leave()
    headers = _rest(head)
    if ending.payload is not None and head.streaming is not call.stream:
        return from_payload(ending.payload, call, headers)
    if ending.body is None:
        text = "the stream that this request joined gave no whole answer"
        raise UpstreamBroken(text, upstream=head.upstream)
    return Reply(status=head.status, headers=_with_type(head, headers), body=ending.body)


async def _live(listener: Listener, call: Call) -> AsyncGenerator[bytes, None]:
    """The frames as they come, without the usage that this client did not ask for."""
    try:
        async for frames in listener.frames():
            data = b"".join([f.data if call.include_usage else f.bare for f in frames])
            if data:
                yield data
    finally:
        listener.leave()


def _rest(head: Head) -> Headers:
    """The upstream's headers, but for those that belong to the form, which may be another here."""
    return tuple(pair for pair in passed_on(head.headers) if pair[0] not in _OF_THE_FORM)


def _with_type(head: Head, headers: Headers) -> Headers:
    kind = next((pair for pair in head.headers if pair[0] == b"content-type"), JSON)
    return (kind, *headers)
