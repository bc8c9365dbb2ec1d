"""W3C Trace Context: where a request's trace comes from, and what its upstreams are told of it.

https://www.w3.org/TR/trace-context/, section 3.2. What a client says in `tracestate` is forwarded
like any other header.
"""

import re
import secrets

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]
"""As `proxy.call` has them, which needs this file."""

_NAME = b"traceparent"
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1
_SHARE_BITS = 56
"""OpenTelemetry's samplers by ratio look at the last 7 bytes, which are random by Level 2."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of a request, and the ids of its own span and of the one that it is part of."""

    trace_id: int
    span_id: int
    parent_id: int = 0
    """0: the trace begins here."""
    is_sampled: bool = True

    def new_span_id(self) -> int:
        """Of a span within the request's."""
        return _some_bits(64)


def trace_of(headers: Headers, *, share: float) -> Trace:
    """The client's trace continued; or a new one, of which `share` are sampled."""
    came = next((value for name, value in headers if name == _NAME), b"")
    parent = _parent(came)
    span_id = _some_bits(64)
    if parent is not None:
        return Trace(
            trace_id=parent.trace_id,
            span_id=span_id,
            parent_id=parent.span_id,
            is_sampled=parent.is_sampled,
        )
    trace_id = _some_bits(128)
    low = trace_id & ((1 << _SHARE_BITS) - 1)
    return Trace(trace_id=trace_id, span_id=span_id, is_sampled=low < share * (1 << _SHARE_BITS))


def told(headers: Headers, trace: Trace, *, span_id: int) -> Headers:
    """The headers of a request to an upstream, as part of a span of ours."""
    kept = tuple(pair for pair in headers if pair[0] != _NAME)
    value = f"00-{trace.trace_id:032x}-{span_id:016x}-{int(trace.is_sampled):02x}"
    return (*kept, (_NAME, value.encode()))


def _parent(value: bytes) -> Trace | None:
    """None where it is not one: then the trace begins anew (section 4.3)."""
    form = _FORM.fullmatch(value.strip())
    if form is None or form[1] == b"ff" or (form[1] == b"00" and form[5] is not None):
        return None
    trace_id, span_id = int(form[2], 16), int(form[3], 16)
    if not trace_id or not span_id:
        return None
    return Trace(trace_id=trace_id, span_id=span_id, is_sampled=bool(int(form[4], 16) & _SAMPLED))


def _some_bits(number: int) -> int:
    return secrets.randbits(number) or 1
