"""A request on its way through the data port, for those who look on."""

import itertools
from collections.abc import Callable
from typing import assert_never

import msgspec

from proxy.call import Surface, Usage
from proxy.misses.flight import Ending
from proxy.observing.seen import Ended, Seen
from proxy.observing.timing import Timing
from proxy.outcome import (
    BatchHit,
    BatchMiss,
    Bypass,
    Coalesced,
    ExactHit,
    Miss,
    Near,
    SemanticHit,
    StaleHit,
    reasons_of,
    word,
)
from proxy.question import Question
from proxy.reply import Answer

_NO_ENDING = Ending()
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
    _question: Question | None = None
    _outline: "_Outline | None" = None
    _seen: Seen | None = None

    @property
    def question(self) -> Question | None:
        """None where it was refused before it was decided, or is not remembered any more."""
        return self._question if self.answer is None else self.answer.question

    @property
    def seen(self) -> Seen:
        """What is told of it, once it has ended. Only of one to a cached surface."""
        if self._seen is None:
            self._seen = _seen_of(self)
        return self._seen

    def tell(self, seen: Seen) -> None:
        """This and nothing more is told of it from now on."""
        self._seen, self._outline = seen, None

    def let_go(self) -> None:
        """Let go of the answer, which may be large. Most passages are never looked at, so what is
        told of one is put together when somebody asks; at once where it might still change, since
        an attempt goes on for others or its reader's back."""
        answer = self.answer
        if self.timing.legs:
            self.tell(self.seen)
        elif self._seen is None and answer is not None:
            self._outline = _outline_of(answer)
        if answer is not None:
            self.answer, self._question = None, answer.question

    def forget_question(self) -> None:
        """Let go of the request's words; `let_go` came before."""
        self.tell(self.seen)
        self._question = None


Watcher = Callable[[Passage], None]
"""Told of each passage when it has ended. Returns at once and never raises."""


class _Outline(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of an answer."""

    outcome: str
    reasons: tuple[str, ...] = ()
    status: int = 0
    not_kept: str = ""
    matched: str = ""
    similarity: float | None = None
    near: tuple[Near, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0


_LEFT = _Outline(outcome="left")


def _seen_of(passage: Passage) -> Seen:
    assert passage.surface is not None
    outline = passage._outline or _LEFT
    if passage.answer is not None:
        outline = _outline_of(passage.answer)
    question = passage.question
    return Seen(
        at=passage.arrived_at,
        request_id=passage.request_id,
        surface=passage.surface.value,
        outcome=outline.outcome,
        reasons=outline.reasons,
        not_kept=outline.not_kept,
        status=outline.status,
        ended=passage.ended,
        tenant=passage.tenant if outline is _LEFT else _tenant(question),
        model="" if question is None else question.route.model,
        route="" if question is None else question.route.name,
        policy=_policy(question),
        stream=question is not None and question.call.stream,
        key="" if question is None else question.key,
        scope=_scope(question),
        matched=outline.matched,
        similarity=outline.similarity,
        near=outline.near,
        subjects=() if question is None else question.subjects,
        input_tokens=outline.input_tokens,
        output_tokens=outline.output_tokens,
        first_ms=None if outline is _LEFT else passage.first_ms,
        total_ms=passage.total_ms,
        phases_ms=passage.timing.spent_ms(),
    )


def _outline_of(answer: Answer) -> _Outline:
    outcome, status = answer.outcome, answer.reply.status
    match outcome:
        case ExactHit(entry=entry) | StaleHit(entry=entry) | SemanticHit(entry=entry):
            return _Outline(
                outcome=word(outcome),
                status=status,
                matched=entry.key,
                similarity=outcome.similarity if isinstance(outcome, SemanticHit) else None,
                input_tokens=entry.input_tokens,
                output_tokens=entry.output_tokens,
            )
        case BatchHit() | BatchMiss() | Miss() | Coalesced() | Bypass():
            ending = (None if answer.flight is None else answer.flight.ending) or _NO_ENDING
            usage = ending.usage
            if isinstance(outcome, BatchHit | BatchMiss):
                usage = _of_batch(outcome)
            return _Outline(
                outcome=word(outcome),
                reasons=reasons_of(outcome),
                status=status,
                not_kept=ending.not_kept,
                near=_told(outcome.near) if isinstance(outcome, Miss) else (),
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
            )
        case _:
            assert_never(outcome)


def _of_batch(outcome: BatchHit | BatchMiss) -> Usage:
    num_known = sum(hit.entry.input_tokens for hit in outcome.hits)
    num_made = outcome.num_tokens if isinstance(outcome, BatchMiss) else 0
    return Usage(input_tokens=num_known + num_made)


def _told(near: tuple[Near, ...]) -> tuple[Near, ...]:
    """The best one whole, since it is judged again elsewhere. A thousand requests of each process
    have to fit into its memory, and into one answer."""
    others = (msgspec.structs.replace(one, prompt=one.prompt[:_MAX_CHARS]) for one in near[1:])
    return (*near[:1], *itertools.islice(others, _MAX_NEAR - 1))


def _tenant(question: Question | None) -> str:
    return "" if question is None else question.call.caller.tenant


def _policy(question: Question | None) -> str:
    return "" if question is None else question.route.policy_name or ""


def _scope(question: Question | None) -> str:
    fingerprint = None if question is None else question.fingerprint
    return "" if fingerprint is None else fingerprint.scope
