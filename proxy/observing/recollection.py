"""A request that went through, with its words and without its credential: what one process tells
another of it, and what the request log keeps where it keeps bodies."""

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from proxy.call import Call, Caller, Directives, Headers, Surface
from proxy.observing.seen import Seen
from proxy.question import Question
from proxy.request import wire
from proxy.tenancy.tenants import CREDENTIAL_HEADERS

_SECRETS = frozenset((*CREDENTIAL_HEADERS, b"cookie", b"proxy-authorization"))


class Recollection(msgspec.Struct, frozen=True, kw_only=True):
    """What `call_of` makes a call of again."""

    request_id: str
    received_at: float
    """Unix seconds."""
    path: str
    """Below `/v1`."""
    query: str = ""
    headers: dict[str, str] = {}
    """Lines of one name are joined by commas."""
    caller: Caller
    directives: Directives
    request: Raw
    """The body on one line, without our own `cache` object, whose words are in `directives`."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and what became of it."""

    seen: Seen
    asked: Recollection


def last_of_each(those: Iterable[Remembered]) -> tuple[Remembered, ...]:
    """The last request of each caller."""
    last: dict[Caller, Remembered] = {}
    for one in sorted(those, key=lambda one: one.seen.at):
        last[one.asked.caller] = one
    return tuple(last.values())


def recollection_of(question: Question) -> Recollection:
    """Without its credential, and whatever else may hold secrets by its nature."""
    call = question.call
    return Recollection(
        request_id=call.request_id,
        received_at=call.received_at,
        path=call.path,
        query=call.query.decode("latin-1"),
        headers=_told(call.headers),
        caller=call.caller,
        directives=call.directives,
        request=Raw(msgspec.json.format(call.body, indent=-1)),
    )


def call_of(told: Recollection) -> Call:
    """The call as it was, but for its credential. Raises ClientError where the body was altered."""
    surface = wire.surface_of(told.path) or Surface.CHAT
    decoded = wire.decode(surface, bytes(told.request))
    headers: Headers = tuple(
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in told.headers.items()
    )
    return Call(
        request_id=told.request_id,
        caller=told.caller,
        surface=surface,
        path=told.path,
        query=told.query.encode("latin-1", "replace"),
        headers=headers,
        credential=None,
        body=decoded.body,
        fields=decoded.fields,
        model=decoded.view.model or "",
        stream=decoded.stream,
        include_usage=decoded.include_usage,
        directives=told.directives,
        received_at=told.received_at,
    )


def _told(headers: Headers) -> dict[str, str]:
    told: dict[str, str] = {}
    for raw_name, raw_value in headers:
        if raw_name not in _SECRETS:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            told[name] = f"{told[name]}, {value}" if name in told else value
    return told
