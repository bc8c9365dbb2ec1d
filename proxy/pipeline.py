"""The way of a request, from decoded call to answer. The only place that knows the order.

decide: route, judge, fingerprint, tags
find:   exact, by meaning             -> a hit is replayed
forward: join or start a flight       -> a miss is recorded and kept by the flight
"""

import msgspec

from proxy.answering import from_entry, from_flight
from proxy.cache import Cache, Found
from proxy.call import Call
from proxy.client import Client
from proxy.deciding import Decider
from proxy.errors import ClientError, UpstreamError
from proxy.forwarding import Forwarder
from proxy.outcome import Bypass, Coalesced, Hit, Miss, Outcome, StaleHit, word
from proxy.question import Question
from proxy.reply import Reply, of_client_error, of_upstream_error


class Answer(msgspec.Struct, kw_only=True):
    """A reply and what became of its request."""

    reply: Reply
    outcome: Outcome


class Pipeline:
    """One request after the other, each through the same rooms."""

    def __init__(self, *, decider: Decider, cache: Cache, forwarder: Forwarder) -> None:
        self._decider = decider
        self._cache = cache
        self._forwarder = forwarder

    async def answer(self, call: Call, client: Client) -> Answer:
        """Raises ClientError where nothing was looked up, ClientLeft when the client hung up."""
        question = self._decider.decide(call)
        if question.fingerprint is None:
            return await self._forward(question, Found(), client)
        found = await self._cache.find(question)
        hit = _servable(question, found)
        reply = None if hit is None else from_entry(hit.entry, call)
        if hit is not None and reply is not None:
            if isinstance(hit, StaleHit):
                self._forwarder.refresh(question, found)
            return Answer(reply=reply, outcome=hit)
        if call.directives.only_if_cached:
            return Answer(reply=_not_cached(), outcome=_miss(question, found))
        return await self._forward(question, found, client)

    async def _forward(self, question: Question, found: Found, client: Client) -> Answer:
        boarded = self._forwarder.board(question, found)
        flight = boarded.flight
        outcome = _outcome(question, found, joined=boarded.joined)
        listener = flight.listen()
        client.when_gone(listener.leave)
        try:
            reply = await from_flight(listener, question.call)
        except UpstreamError as error:
            listener.leave()
            reply = of_upstream_error(error)
        except BaseException:
            listener.leave()
            raise
        if reply.status == 429 or reply.status >= 500:
            rescue = _rescue(found)
            stale = None if rescue is None else from_entry(rescue.entry, question.call)
            if rescue is not None and stale is not None:
                return Answer(reply=stale, outcome=rescue)
        if isinstance(outcome, Miss) and flight.ending is not None and flight.ending.stored:
            outcome = msgspec.structs.replace(outcome, stored=True)
        return Answer(reply=reply, outcome=outcome)


def _servable(question: Question, found: Found) -> Hit | None:
    if not question.serves:
        return None
    if found.hit is not None:
        return found.hit
    if found.staleness is not None and found.staleness.max_stale_ok:
        return _stale(found, "max-stale")
    if found.staleness is not None and found.staleness.may_serve_while_revalidating:
        return _stale(found, "stale-while-revalidate")
    return None


def _rescue(found: Found) -> StaleHit | None:
    if found.staleness is None or not found.staleness.may_serve_if_error:
        return None
    return _stale(found, "stale-if-error")


def _stale(found: Found, reason: str) -> StaleHit:
    assert found.stale is not None
    assert found.staleness is not None
    staleness = found.staleness
    return StaleHit(entry=found.stale, age_s=staleness.age_s, ttl_s=staleness.ttl_s, reason=reason)


def _outcome(question: Question, found: Found, *, joined: bool) -> Outcome:
    if question.fingerprint is None:
        return Bypass(reasons=question.eligibility.reasons)
    if joined:
        return Coalesced(key=question.key)
    return _miss(question, found)


def _miss(question: Question, found: Found) -> Miss:
    detail = found.reasons
    if found.hit is not None:
        detail = (f"shadow-{word(found.hit)}",)
    forward = "request" if not question.eligibility.read else "uri-miss"
    if found.stale is not None:
        forward = "stale"
    return Miss(key=question.key, forward=forward, detail=detail)


def _not_cached() -> Reply:
    error = ClientError(
        504, "There is no stored answer, and only-if-cached forbids making one.", retry=False
    )
    return of_client_error(error)
