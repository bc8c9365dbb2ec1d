"""Traces and their metrics, as the requests see them."""

import asyncio
from typing import Protocol

from proxy.call import Headers, Surface, Usage
from proxy.observing.names import Names
from proxy.observing.spans import (
    PROVIDER,
    Attributes,
    Span,
    attributes_of,
    operation_of,
    span_of,
    spans_of,
)
from proxy.observing.timing import Leg, Timing
from proxy.observing.traceparent import Trace, trace_of
from proxy.port.passage import Passage
from proxy.settings.observing import Tracing


class Exports(Protocol):
    """Where spans and counts go: `proxy.observing.otlp`."""

    def export(self, span: Span, trace: Trace) -> None: ...

    def took(self, seconds: float, attributes: Attributes) -> None: ...

    def used(self, usage: Usage, attributes: Attributes) -> None: ...

    def close(self) -> None: ...


class NotTraced:
    """Requests are only timed."""

    def begin(self, _: Headers) -> Timing:
        """A request arrives."""
        return Timing()

    def note(self, _: Passage) -> None:
        """Nothing to tell."""

    def used(self, surface: Surface, *, model: str, answered_by: str, usage: Usage) -> None:
        """Nothing to tell."""

    async def close(self) -> None:
        """Nothing to send."""


class Traced:
    """Each request has a trace, of which some are told."""

    def __init__(self, exports: Exports, *, share: float) -> None:
        """`share`: of the traces that begin here."""
        self._exports = exports
        self._share = share
        self._names = Names()

    def begin(self, headers: Headers) -> Timing:
        """A request arrives."""
        trace = trace_of(headers, share=self._share)
        return Timing(trace=trace, when_leg_ends=self._leg_ended)

    def note(self, passage: Passage) -> None:
        """See `proxy.port.passage.Watcher`."""
        trace = passage.timing.trace
        if trace is not None and trace.is_sampled:
            for span in spans_of(passage, trace):
                self._exports.export(span, trace)

    def used(self, surface: Surface, *, model: str, answered_by: str, usage: Usage) -> None:
        """An upstream counted: `answered_by` is the model as it calls it."""
        attributes: Attributes = {
            "gen_ai.operation.name": operation_of(surface.value),
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": self._names.label(model),
            "gen_ai.response.model": self._names.label(answered_by),
        }
        self._exports.used(usage, attributes)

    async def close(self) -> None:
        """Send what is pending."""
        await asyncio.to_thread(self._exports.close)

    def _leg_ended(self, timing: Timing, leg: Leg) -> None:
        assert leg.ended_s is not None
        if operation_of(leg.path):
            attributes = attributes_of(leg)
            attributes["gen_ai.request.model"] = self._names.label(leg.model)
            self._exports.took(leg.ended_s - leg.began_s, attributes)
        if timing.trace is not None and timing.trace.is_sampled:
            self._exports.export(span_of(leg, timing.trace), timing.trace)


def make_tracing(config: Tracing | None) -> Traced | NotTraced:
    """That of a config."""
    if config is None:
        return NotTraced()
    # Imported where it is needed: its library is an extra.
    from proxy.observing.otlp import Exporter

    return Traced(Exporter(config), share=config.sample)
