"""What was taken for an answer and cannot be put into the form that is asked for."""

import msgspec
from test_choices import CALL
from test_freshness import entry

from index.entry import Snapshot
from proxy.answer import payload as payloads
from proxy.answer.payload import Payload
from proxy.answer.replay import Replays
from proxy.answering import Answering
from proxy.call import Surface, Usage
from proxy.misses.flight import Ending, Flight, Head

POISON = Payload(
    surface=Surface.CHAT,
    headers=(),
    body=b'{"choices":[{"message":null}]}',
    usage=Usage(),
    usage_known=False,
    model="m",
    has_tool_calls=False,
)
STREAMED = msgspec.structs.replace(CALL, stream=True)


def answering() -> Answering:
    return Answering(Replays(max_bytes=1000), keep_alive_s=10.0)


def test_an_entry_without_the_form_that_is_asked_for_is_a_miss():
    stored = msgspec.structs.replace(entry(), payload=payloads.encode(POISON))

    assert answering().from_entry(stored, STREAMED) is None
    reply = answering().from_entry(stored, CALL)
    assert reply is not None
    assert reply.body == POISON.body


async def test_an_answer_without_the_form_that_is_asked_for_goes_out_as_it_came():
    flight = Flight(
        ["k"], snapshot=Snapshot(generation="g", sequence=0), tags=frozenset(), keeps_all=True
    )
    flight.begin(Head(status=200, headers=(), streaming=False, upstream="u", varied=()))
    flight.end(Ending(body=POISON.body, payload=POISON))

    own = await answering().from_flight(flight.listen(), STREAMED, joined=False)
    joined = await answering().from_flight(flight.listen(), STREAMED, joined=True)

    assert own is not None
    assert own.body == POISON.body
    assert joined is None
