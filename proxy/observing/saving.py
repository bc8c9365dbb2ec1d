"""What an answer from the cache saved. Pure."""

from collections.abc import Sequence

import msgspec

from index.entry import Entry
from proxy.outcome import (
    BatchHit,
    BatchMiss,
    Coalesced,
    ExactHit,
    SemanticHit,
    StaleHit,
)
from proxy.reply import Answer


class Saving(msgspec.Struct, frozen=True):
    """Tokens that no upstream had to make again, by the model that had made them once."""

    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    made_in_s: float = 0.0
    """What that had taken. Who waits for another's answer to the same request saves no time."""


def savings_of(answer: Answer) -> Sequence[Saving]:
    """Of an answer that has ended; empty when it did not come from the cache."""
    match answer.outcome:
        case ExactHit() | StaleHit() | SemanticHit() as hit:
            return (_of(hit.entry, hit.entry.latency_ms / 1000),)
        case BatchHit(hits=hits):
            # The inputs were made side by side, so the batch saves what the slowest of them took.
            slowest_s = max(hit.entry.latency_ms for hit in hits) / 1000
            first = _of(hits[0].entry, slowest_s)
            return (first, *(_of(hit.entry) for hit in hits[1:]))
        case BatchMiss(hits=hits):
            return tuple(_of(hit.entry) for hit in hits)
        case Coalesced():
            return _of_flight(answer)
        case _:
            return ()


def _of(entry: Entry, made_in_s: float = 0.0) -> Saving:
    return Saving(entry.model, entry.input_tokens, entry.output_tokens, 0, made_in_s)


def _of_flight(answer: Answer) -> Sequence[Saving]:
    ending = None if answer.flight is None else answer.flight.ending
    if ending is None or ending.payload is None:
        return ()
    model, usage = ending.payload.model, ending.payload.usage
    return (Saving(model, usage.input_tokens, usage.output_tokens, usage.cached_tokens),)
