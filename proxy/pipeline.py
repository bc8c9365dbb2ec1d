"""The way of a question to its answer. The only place that knows the order.

(received, decoded and decided before: `proxy.port.intake`)
find:   exact, by meaning             -> a hit is replayed
forward: join or start a flight       -> a miss is recorded and kept by the flight

Embeddings go the same way one input at a time (`proxy.embeddings`).
"""

import msgspec

from proxy.answering import Answering
from proxy.auditing.auditor import Auditor
from proxy.call import Call, Surface
from proxy.embeddings.batches import Batches
from proxy.errors import UpstreamError
from proxy.lookup.cache import Cache
from proxy.lookup.found import Found
from proxy.lookup.late import give_up
from proxy.lookup.servable import is_failure, not_cached, rescue, servable, wants_refresh
from proxy.misses.forwarding import Boarded, Forwarder
from proxy.outcome import Bypass, Coalesced, Miss, Outcome, SemanticHit, word
from proxy.port.client import Client
from proxy.question import Question
from proxy.reply import Answer, Reply, of_upstream_error


class Pipeline:
    """One request after the other, each through the same rooms."""

    def __init__(
        self,
        *,
        cache: Cache,
        forwarder: Forwarder,
        answering: Answering,
        batches: Batches,
        auditor: Auditor,
    ) -> None:
        self._cache = cache
        self._forwarder = forwarder
        self._answering = answering
        self._batches = batches
        self._auditor = auditor

    async def answer(self, question: Question, client: Client) -> Answer:
        """Raises ClientError where nothing was looked up, ClientLeft when the client hung up."""
        call = question.call
        if question.fingerprint is None:
            return await self._forward(question, Found(), client)
        if call.surface is Surface.EMBEDDINGS:
            return await self._batches.answer(question, client)
        found = await self._cache.find(question)
        if found.barred is not None:
            return await self._forward(question.barred(found.barred), Found(), client)
        while (hit := found.hit or servable(question, found)) is not None:
            reply = self._answering.from_entry(hit.entry, call)
            if reply is None:
                found = await self._cache.find_besides(question, found)
                continue
            if not question.serves:
                break
            if wants_refresh(hit):
                self._forwarder.refresh(question, found)
            else:
                give_up(found.late)
            if isinstance(hit, SemanticHit):
                self._auditor.served(question, found, hit)
            return Answer(reply=reply, outcome=hit)
        if call.directives.only_if_cached:
            give_up(found.late)
            return Answer(reply=not_cached(), outcome=_miss(question, found))
        return await self._forward(question, found, client)

    async def _forward(self, question: Question, found: Found, client: Client) -> Answer:
        boarded = self._forwarder.board(question, found)
        would_be = found.withheld or found.hit
        if isinstance(would_be, SemanticHit) and not boarded.joined:
            self._auditor.withheld(question, would_be, boarded.flight)
        reply = await self._ride(boarded, question.call, client)
        if reply is None:
            boarded = self._forwarder.board_alone(question, found)
            reply = await self._ride(boarded, question.call, client)
            assert reply is not None
        rescued = await self._rescued(question, found) if is_failure(reply) else None
        outcome = _outcome(question, found, boarded)
        return rescued or Answer(reply=reply, outcome=outcome, flight=boarded.flight)

    async def _rescued(self, question: Question, found: Found) -> Answer | None:
        """What is stored, looked up again: it may have been purged while the upstream failed."""
        if rescue(question, found) is None:
            return None
        now = await self._cache.find_exact(question)
        hit = servable(question, now) or rescue(question, now)
        reply = None if hit is None else self._answering.from_entry(hit.entry, question.call)
        return None if hit is None or reply is None else Answer(reply=reply, outcome=hit)

    async def _ride(self, boarded: Boarded, call: Call, client: Client) -> Reply | None:
        listener = boarded.flight.listen()
        client.when_gone(listener.leave)
        try:
            return await self._answering.from_flight(listener, call, joined=boarded.joined)
        except UpstreamError as error:
            listener.leave()
            return of_upstream_error(error)
        except BaseException:
            listener.leave()
            raise


def _outcome(question: Question, found: Found, boarded: Boarded) -> Outcome:
    if question.fingerprint is None:
        return Bypass(reasons=question.eligibility.reasons)
    if boarded.joined or boarded.flight.made_elsewhere:
        return Coalesced(key=question.key)
    ending = boarded.flight.ending
    miss = _miss(question, found)
    return msgspec.structs.replace(miss, stored=True) if ending and ending.stored else miss


def _miss(question: Question, found: Found) -> Miss:
    detail = found.reasons
    if found.hit is not None:
        detail = (f"shadow-{word(found.hit)}",)
    forward = "request" if not question.eligibility.read else "uri-miss"
    if found.stale is not None:
        forward = "stale"
    return Miss(key=question.key, forward=forward, detail=detail, near=found.near)
