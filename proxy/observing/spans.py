"""From the times of a request to the spans of its trace, by OpenTelemetry's conventions. Pure.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/ and .../http/http-spans/.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from proxy.call import Surface
from proxy.observing.seen import Seen
from proxy.observing.timing import Leg, Timing
from proxy.observing.traceparent import Trace
from proxy.outcome import Bypass, Miss
from proxy.port.passage import Passage

Kind = Literal["server", "client", "internal"]
Attributes = dict[str, str | int | float | bool | tuple[str, ...]]

PROVIDER = "openai"
"""All upstreams speak its API; whose models are behind them nobody says."""
_OPERATIONS = {
    Surface.CHAT.value: "chat",
    Surface.COMPLETIONS.value: "text_completion",
    Surface.EMBEDDINGS.value: "embeddings",
    Surface.RESPONSES.value: "chat",
}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span; times of `time.perf_counter`."""

    name: str
    kind: Kind
    span_id: int
    parent_id: int
    """0: it is the first of its trace."""
    began_s: float
    ended_s: float
    attributes: Attributes
    error: str = ""
    """What went wrong, in a word; empty where nothing did."""


def operation_of(path: str) -> str:
    """Value of `gen_ai.operation.name`; empty where the conventions have none."""
    return _OPERATIONS.get(path, "")


def spans_of(passage: Passage, trace: Trace) -> tuple[Span, ...]:
    """Of a passage that has ended: the request's own and its phases; legs have theirs."""
    timing = passage.timing
    root = _root(passage, trace, timing)
    phases = (
        Span(
            name=one.name,
            kind="internal",
            span_id=trace.new_span_id(),
            parent_id=trace.span_id,
            began_s=one.began_s,
            ended_s=one.ended_s,
            attributes={},
        )
        for one in timing.phases
    )
    return (root, *phases)


def span_of(leg: Leg, trace: Trace) -> Span:
    """Of an attempt that has ended."""
    assert leg.ended_s is not None
    attributes = attributes_of(leg)
    attributes["rejoinder.upstream"] = leg.upstream
    attributes["rejoinder.result"] = leg.result
    attributes["server.address"] = leg.server
    if leg.answered_s is not None and leg.status is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = leg.answered_s - leg.began_s
    return Span(
        name=_name(operation_of(leg.path), leg.model) or leg.path,
        kind="client",
        span_id=leg.span_id,
        parent_id=trace.span_id,
        began_s=leg.began_s,
        ended_s=leg.ended_s,
        attributes=attributes,
        error=error_of(leg),
    )


def attributes_of(leg: Leg) -> Attributes:
    """What spans and metrics of an attempt have in common."""
    attributes: Attributes = {}
    operation = operation_of(leg.path)
    if operation:
        attributes["gen_ai.operation.name"] = operation
        attributes["gen_ai.provider.name"] = PROVIDER
        attributes["gen_ai.request.model"] = leg.model
    if leg.status is not None:
        attributes["http.response.status_code"] = leg.status
    if error := error_of(leg):
        attributes["error.type"] = error
    return attributes


def error_of(leg: Leg) -> str:
    """Value of `error.type`: the status, or how there came none."""
    if leg.status is None:
        return leg.result
    return str(leg.status) if leg.status >= 400 else ""


def _root(passage: Passage, trace: Trace, timing: Timing) -> Span:
    operation = "" if passage.surface is None else operation_of(passage.surface.value)
    attributes: Attributes = {
        "http.request.method": passage.method,
        "url.path": passage.path,
        "rejoinder.request_id": passage.request_id,
        "rejoinder.ended": passage.ended,
    }
    if passage.status:
        attributes["http.response.status_code"] = passage.status
    if passage.surface is not None:
        attributes |= _of_cache(passage.seen)
        attributes["gen_ai.operation.name"] = operation
    answer = passage.answer
    if answer is not None and isinstance(answer.outcome, (Miss, Bypass)):
        attributes |= _of_usage(passage.seen)
    error = _error(passage)
    if error:
        attributes["error.type"] = error
    return Span(
        name=_name(operation, timing.model) or f"{passage.method} {passage.path}",
        kind="server",
        span_id=trace.span_id,
        parent_id=trace.parent_id,
        began_s=timing.began_s,
        ended_s=timing.began_s + passage.total_ms / 1000,
        attributes=attributes,
        error=error,
    )


def _of_cache(seen: Seen) -> Attributes:
    attributes: Attributes = {
        "rejoinder.outcome": seen.outcome,
        "rejoinder.reasons": seen.reasons,
        "gen_ai.request.stream": seen.stream,
    }
    named: Mapping[str, str | float | None] = {
        "rejoinder.tenant": seen.tenant,
        "rejoinder.route": seen.route,
        "rejoinder.policy": seen.policy,
        "rejoinder.similarity": seen.similarity,
        "gen_ai.request.model": seen.model,
    }
    return attributes | {name: value for name, value in named.items() if value not in (None, "")}


def _of_usage(seen: Seen) -> Attributes:
    """Only of what was made for this request: the conventions count what is billed."""
    if not seen.input_tokens and not seen.output_tokens:
        return {}
    return {
        "gen_ai.usage.input_tokens": seen.input_tokens,
        "gen_ai.usage.output_tokens": seen.output_tokens,
    }


def _error(passage: Passage) -> str:
    """A server's span is in error for 5xx only (HTTP conventions, "Status")."""
    if passage.status >= 500:
        return str(passage.status)
    return "" if passage.ended == "whole" else passage.ended


def _name(operation: str, model: str) -> str:
    return f"{operation} {model}".strip()
