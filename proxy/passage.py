"""A request on its way through the data port, for those who look on."""

import itertools
from collections.abc import Callable
from typing import assert_never

import msgspec

from proxy.call import Surface, Usage
from proxy.flight import Ending
from proxy.observing.timing import Timing
from proxy.outcome import (
    BatchHit,
    BatchMiss,
    Bypass,
    Coalesced,
    ExactHit,
    Miss,
    Near,
    Outcome,
    SemanticHit,
    StaleHit,
    reasons_of,
    word,
)
from proxy.question import Question
from proxy.reply import Answer
from proxy.seen import Ended, Seen

_NO_USAGE = Usage()
_NO_ENDING = Ending()
_LEFT = "left"
_MAX_NEAR = 8
"""Of a request, the best ones."""
_MAX_CHARS = 500
"""Of the questions beside the best."""


class Passage(msgspec.Struct, kw_only=True):
    """Filled while the request passes: not frozen, unlike what is made of it in the end."""

    request_id: str
    arrived_at: float
    """Unix seconds."""
    timing: Timing
    method: str = ""
    path: str = ""
    """As the client wrote it, without the query."""
    tenant: str = ""
    """Empty until it is known who asks."""
    surface: Surface | None = None
    """None where nothing of it can be kept: what is only passed through."""
    answer: Answer | None = None
    """None where the client left before there was one."""
    status: int = 0
    """0 until the answer began."""
    num_bytes: int = 0
    """Of the answer's body, as far as it was sent."""
    first_ms: float | None = None
    """Until the answer began."""
    total_ms: float = 0.0
    """Until its last byte was sent, or the client had left."""
    ended: Ended = "left"
    """`broken`: the upstream broke off a stream that had begun."""
    _seen: Seen | None = None

    @property
    def seen(self) -> Seen:
        """What is told of it, once it has ended. Only of one to a cached surface."""
        if self._seen is None:
            self._seen = _seen_of(self)
        return self._seen


Watcher = Callable[[Passage], None]
"""Told of each passage when it has ended. Returns at once and never raises."""


def _seen_of(passage: Passage) -> Seen:
    assert passage.surface is not None
    answer = passage.answer
    if answer is None:
        return Seen(
            at=passage.arrived_at,
            request_id=passage.request_id,
            surface=passage.surface.value,
            outcome=_LEFT,
            ended=passage.ended,
            tenant=passage.tenant,
            total_ms=passage.total_ms,
            phases_ms=passage.timing.spent_ms(),
        )
    served = _served(answer.outcome)
    ending = _NO_ENDING if answer.flight is None else answer.flight.ending or _NO_ENDING
    usage = served.usage if answer.flight is None else ending.usage
    question = answer.question
    return Seen(
        at=passage.arrived_at,
        request_id=passage.request_id,
        surface=passage.surface.value,
        outcome=word(answer.outcome),
        reasons=reasons_of(answer.outcome),
        not_kept=ending.not_kept,
        status=answer.reply.status,
        ended=passage.ended,
        tenant="" if question is None else question.call.caller.tenant,
        model="" if question is None else question.route.model,
        route="" if question is None else question.route.name,
        policy=_policy(question),
        stream=question is not None and question.call.stream,
        key="" if question is None else question.key,
        scope=_scope(question),
        matched=served.key,
        similarity=served.similarity,
        near=served.near,
        subjects=() if question is None else question.subjects,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        first_ms=passage.first_ms,
        total_ms=passage.total_ms,
        phases_ms=passage.timing.spent_ms(),
    )


class _Served(msgspec.Struct, frozen=True, kw_only=True):
    key: str = ""
    similarity: float | None = None
    near: tuple[Near, ...] = ()
    usage: Usage = _NO_USAGE


def _served(outcome: Outcome) -> _Served:
    match outcome:
        case ExactHit(entry=entry) | StaleHit(entry=entry) | SemanticHit(entry=entry):
            usage = Usage(input_tokens=entry.input_tokens, output_tokens=entry.output_tokens)
            similarity = outcome.similarity if isinstance(outcome, SemanticHit) else None
            return _Served(key=entry.key, similarity=similarity, usage=usage)
        case BatchHit(hits=hits) | BatchMiss(hits=hits):
            spared = sum(hit.entry.input_tokens for hit in hits)
            return _Served(usage=Usage(input_tokens=spared))
        case Miss(near=near):
            return _Served(near=_told(near))
        case Coalesced() | Bypass():
            return _Served()
        case _:
            assert_never(outcome)


def _told(near: tuple[Near, ...]) -> tuple[Near, ...]:
    """The best one whole, since it is judged again elsewhere. A thousand requests of each process
    have to fit into its memory, and into one answer."""
    others = (msgspec.structs.replace(one, prompt=one.prompt[:_MAX_CHARS]) for one in near[1:])
    return (*near[:1], *itertools.islice(others, _MAX_NEAR - 1))


def _policy(question: Question | None) -> str:
    return "" if question is None else question.route.policy_name or ""


def _scope(question: Question | None) -> str:
    fingerprint = None if question is None else question.fingerprint
    return "" if fingerprint is None else fingerprint.scope
