"""From a whole answer to an entry in the store, if nothing speaks against it."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Mapping

import msgspec

from index.entry import Entry
from index.store import NotStored
from index.tags import model_tag, union
from proxy.answer import payload as payloads
from proxy.answer.control import Control, control_of
from proxy.answer.freshness import lifetimes
from proxy.answer.grammar import Bill
from proxy.answer.recording import Complete, Recording
from proxy.call import Headers
from proxy.deciding import Decider
from proxy.lookup.cache import Cache
from proxy.lookup.found import Found
from proxy.observing.metrics import Metrics
from proxy.observing.spending import Spending
from proxy.question import Question
from proxy.request.invalidation import Tagged, Untaggable, implicit_tags, response_tags
from proxy.upstreams.base import UpstreamResponse

log = logging.getLogger("rejoinder.keep")

_PATIENCE_S = 1.0
"""How long an answer waits to be stored before it goes out all the same."""
_STORES_WORDS = {
    "generation": "the store lost its purges meanwhile",
    "purged": "one of its tags was purged while it was made",
    "store_fault": "the store failed",
    "too_large": "larger than the store takes",
}


class NotKept(msgspec.Struct, frozen=True, kw_only=True):
    """Why an answer is not kept: in a word for the metrics, and in words; no words where its
    request had not asked for that."""

    word: str
    reason: str


class Keeper:
    """Decides whether an answer is kept, makes its entry and stores it."""

    def __init__(
        self,
        *,
        cache: Cache,
        decider: Decider,
        metrics: Metrics,
        clock: Callable[[], float],
        honour: Mapping[str, Collection[str]],
        spending: Spending,
    ) -> None:
        """`honour`: what of each upstream's `Cache-Control` is obeyed, by its name."""
        self._cache = cache
        self._honour = honour
        self._decider = decider
        self._metrics = metrics
        self._spending = spending
        self._clock = clock
        self._pending: set[asyncio.Task[NotStored | None]] = set()

    async def keep(
        self, question: Question, found: Found, response: UpstreamResponse, recording: Recording
    ) -> NotKept | None:
        """None when the entry is stored as this returns. A slow store is not waited for long: the
        write then goes on by itself."""
        if not question.eligibility.write or found.snapshot is None:
            return NotKept(word="bypass", reason="")
        found = await self._cache.caught_up(question, found)
        entry = self.judge(question, found, response, recording)
        if isinstance(entry, NotKept):
            self._metrics.recordings.labels(entry.word).inc()
            log.debug("%s: not kept: %s", question.call.request_id, entry.reason)
            return entry
        writing = asyncio.ensure_future(self._cache.keep(entry))
        self._pending.add(writing)
        writing.add_done_callback(self._pending.discard)
        done, _ = await asyncio.wait({writing}, timeout=_PATIENCE_S)
        if not done:
            return NotKept(word="slow", reason="the store is slow: it is written later")
        refused = writing.result()
        if refused is None:
            return None
        word = refused.reason
        return NotKept(word=word, reason=_STORES_WORDS.get(word, word))

    def settle(self, question: Question, bill: Bill, *, upstream: str) -> None:
        """An upstream has answered: its count is noted and charged, whether the answer is kept or
        not. Where it did not count, the tenant pays what was guessed."""
        self._spending.note(
            bill, surface=question.call.surface, upstream=upstream, route=question.route
        )
        if bill.counted is not None:
            question.call.grant.charge(bill.counted.input_tokens + bill.counted.output_tokens)

    def judge(
        self, question: Question, found: Found, response: UpstreamResponse, recording: Recording
    ) -> Entry | NotKept:
        """The entry of an answer, where nothing in the answer forbids to keep it. The question has
        to be one whose answers may be kept, and `found` to have a snapshot."""
        if not isinstance(recording, Complete):
            return NotKept(word="discarded", reason=recording.reason)
        if found.barred is not None:
            return NotKept(word="volatile", reason=f"{found.barred}, as its late embedding tells")
        named = response_tags(response.headers)
        if isinstance(named, Untaggable):
            return NotKept(word=named.reason, reason=named.reason)
        control = control_of(response.headers, self._honour.get(response.upstream, ()))
        varied = question.varied_by(response.headers)
        barred = _barred(control, varied)
        if barred:
            return NotKept(word=barred, reason=barred)
        payload = msgspec.structs.replace(recording.payload, varied=varied or ())
        recording = msgspec.structs.replace(recording, payload=payload)
        try:
            return self._entry(question, found, response, recording, named, control.lifetime_s)
        except TimeoutError:
            return NotKept(word="strip_slow", reason="what is stripped took too long to find")

    async def close(self) -> None:
        """Wait for the writes that are under way."""
        if self._pending:
            await asyncio.wait(self._pending)

    def _entry(
        self,
        question: Question,
        found: Found,
        response: UpstreamResponse,
        recording: Complete,
        named: Tagged,
        upstream_s: float | None,
    ) -> Entry:
        call, route = question.call, question.route
        assert route.policy is not None
        assert route.policy_name is not None
        assert found.snapshot is not None
        assert question.fingerprint is not None
        fingerprint = question.fingerprint
        primary = route.upstreams[0]
        by_meaning = question.eligibility.semantic and not recording.has_tool_calls
        if response.upstream != primary.name:
            # A fallback's answer is found by those whose first choice the fallback is, and by
            # nobody who would rather have the primary's.
            answered = next(one for one in route.upstreams if one.name == response.upstream)
            fingerprint = self._decider.fingerprint(call, route, answered, semantic=by_meaning)
        by_meaning = by_meaning and bool(fingerprint.scope and found.embedding)
        implicit = implicit_tags(
            call,
            route=route.name,
            policy_name=route.policy_name,
            model=route.model,
            subjects=question.subjects,
        )
        answered_by = (model_tag(recording.model),) if recording.model else ()
        now = self._clock()
        lifetime = lifetimes(
            route.policy,
            call.directives,
            now=now,
            jitter=random.random(),  # noqa: S311  # spreads expiry, protects nothing
            upstream_s=upstream_s,
        )
        return Entry(
            key=fingerprint.key,
            scope=fingerprint.scope if by_meaning else "",
            tenant=call.caller.tenant,
            policy=route.policy_name,
            upstream=response.upstream,
            model=recording.model or route.model,
            surface=call.surface.value,
            prompt=fingerprint.prompt if by_meaning else "",
            canonical=fingerprint.canonical,
            payload=payloads.encode(recording.payload),
            tags=union(question.tags, found.further_tags, named.tags, implicit, answered_by),
            snapshot=found.snapshot,
            created_at=now,
            expires_at=lifetime.expires_at,
            keep_until=lifetime.keep_until,
            input_tokens=recording.usage.input_tokens,
            output_tokens=recording.usage.output_tokens,
            latency_ms=max(now - call.received_at, 0.0) * 1000,
            embedder=found.embedder if by_meaning else "",
            embedding=found.embedding if by_meaning else b"",
        )


def _barred(control: Control, varied: Headers | None) -> str:
    """Why the upstream's own words forbid to keep its answer; empty when they do not."""
    if control.no_store:
        return "upstream_no_store"
    if control.lifetime_s is not None and control.lifetime_s <= 0:
        return "upstream_max_age"
    return "vary" if varied is None else ""
