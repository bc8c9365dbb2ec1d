"""A choice goes on by one token: what its client gets to see of that."""

import logging
from collections.abc import Set

from engine.errors import GrammarFault
from engine.process.protocol import Delta, Failed, Finished
from engine.sampler import Pick
from engine.sequence import Sequence

Event = Delta | Finished | Failed

_STUCK = "The engine could not go on with this answer."

log = logging.getLogger("engine.advancing")


def advance(sequence: Sequence, pick: Pick | None, *, end_ids: Set[int]) -> list[Event]:
    """Appends a token. The last event is `Finished` where the choice ends with it, and `Failed`
    where it cannot go on (None: no token could be drawn); that ends the request, with all its
    choices."""
    if pick is None:
        return _failed(sequence, _STUCK, code="engine_fault")
    try:
        return _advance(sequence, pick, end_ids)
    except GrammarFault as error:
        message = f"The answer's grammar gave out: {error}"
        return _failed(sequence, message, code="grammar_fault")
    except Exception:  # one request must not end those of everybody else
        log.exception("request %d cannot go on", sequence.request_id)
        return _failed(sequence, _STUCK, code="engine_fault")


def _advance(sequence: Sequence, pick: Pick, end_ids: Set[int]) -> list[Event]:
    sequence.append(pick.token_id)
    if sequence.matcher is not None:
        sequence.matcher.accept(pick.token_id)
    if pick.token_id in end_ids:
        return _finished(sequence, sequence.answer.close(), "stop")
    if pick.choice is not None:
        sequence.held_logprobs.append(pick.choice)
    cut = sequence.answer.push(pick.token_id)
    if cut.stopped:
        return _finished(sequence, cut.text, "stop")
    if sequence.matcher is not None and sequence.matcher.complete:
        return _finished(sequence, cut.text + sequence.answer.close(), "stop")
    if sequence.num_output == sequence.max_new_tokens:
        return _finished(sequence, cut.text + sequence.answer.close(), "length")
    return [_delta(sequence, cut.text)] if cut.text else []


def _finished(sequence: Sequence, text: str, reason: str) -> list[Event]:
    finished = Finished(
        request_id=sequence.request_id,
        index=sequence.index,
        reason=reason,
        completion_tokens=sequence.num_output,
        cached_tokens=sequence.cached_tokens or 0,
    )
    return [_delta(sequence, text), finished] if text else [finished]


def _failed(sequence: Sequence, message: str, *, code: str) -> list[Event]:
    return [Failed(request_id=sequence.request_id, message=message, code=code)]


def _delta(sequence: Sequence, text: str) -> Delta:
    """Log-probabilities go out with the text of their tokens; those of a stop string that began at
    a token's border never do."""
    logprobs, sequence.held_logprobs = tuple(sequence.held_logprobs), []
    return Delta(request_id=sequence.request_id, index=sequence.index, text=text, logprobs=logprobs)
