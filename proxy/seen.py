"""What is told of a request that went through: for the list of recent ones, and the request log."""

from typing import assert_never

import msgspec

from proxy.call import Usage
from proxy.flight import Ending
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
from proxy.passage import Ended, Passage
from proxy.question import Question

_NO_USAGE = Usage()
_NO_ENDING = Ending()
_LEFT = "left"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a cached surface. Neither its body nor its answer, nor any credential."""

    at: float
    """When it arrived; Unix seconds."""
    request_id: str
    surface: str
    outcome: str
    """As in `X-Cache`; `left` where the client hung up before there was an answer."""
    reasons: tuple[str, ...] = ()
    """Why it was not answered from the cache."""
    not_kept: str = ""
    """Why the answer was not kept, in words, where the request would have allowed it."""
    status: int = 0
    """0 where the client left before the answer began."""
    ended: Ended
    tenant: str = ""
    """Empty, as all that follows from the request's words, where it was refused unread."""
    model: str = ""
    """That the upstream is asked for."""
    route: str = ""
    policy: str = ""
    stream: bool = False
    key: str = ""
    scope: str = ""
    matched: str = ""
    """Key of the stored answer that was served."""
    similarity: float | None = None
    """Of a hit by meaning."""
    near: tuple[Near, ...] = ()
    """Stored questions that were near and whose answer was not given."""
    input_tokens: int = 0
    """Of the answer, wherever it came from; 0 where nobody counted."""
    output_tokens: int = 0
    subjects: tuple[str, ...] = ()
    """Digests of the users that it names (`proxy.subjects`)."""
    first_ms: float | None = None
    """Until the answer began."""
    total_ms: float


def seen_of(passage: Passage) -> Seen:
    """Of a passage to a cached surface that has ended."""
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
            return _Served(near=near)
        case Coalesced() | Bypass():
            return _Served()
        case _:
            assert_never(outcome)


def _policy(question: Question | None) -> str:
    return "" if question is None else question.route.policy_name or ""


def _scope(question: Question | None) -> str:
    fingerprint = None if question is None else question.fingerprint
    return "" if fingerprint is None else fingerprint.scope
