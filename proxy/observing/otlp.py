"""OpenTelemetry's exporters: the only file that knows its library, which is an extra. Imported when
a config asks for it."""

import time
from importlib.metadata import version
from threading import Thread
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy.call import Usage
from proxy.observing.spans import Attributes, Span
from proxy.observing.traceparent import Trace
from proxy.settings.observing import Tracing

_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_TIMEOUT_S = 3.0
"""For sending, retries included: so long may a collector that is gone hold up the end."""
_LAST_S = 1.0
_DURATIONS_S = [0.01 * 2**power for power in range(14)]
"""As https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/ advises, like the next."""
_TOKENS = [4**power for power in range(14)]


class Exporter:
    """Takes spans and counts, and sends them in threads of the library. What a collector does not
    take is lost, and the library logs it; no request waits."""

    def __init__(self, config: Tracing) -> None:
        base = config.endpoint.rstrip("/")
        headers = {name: str(value) for name, value in config.headers.items()}
        release = version("rejoinder")
        self._resource = Resource.create({
            "service.name": config.service,
            "service.version": release,
            "service.instance.id": str(uuid4()),
        })  # fmt: skip
        self._scope = InstrumentationScope("rejoinder", release)
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=f"{base}/v1/traces", headers=headers, timeout=_TIMEOUT_S)
        )
        readers = []
        if config.metrics:
            sender = OTLPMetricExporter(
                endpoint=f"{base}/v1/metrics", headers=headers, timeout=_TIMEOUT_S
            )
            readers.append(PeriodicExportingMetricReader(sender))
        self._meters = MeterProvider(readers, resource=self._resource, shutdown_on_exit=False)
        meter = self._meters.get_meter("rejoinder", release)
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_DURATIONS_S,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )

    def export(self, span: Span, trace: Trace) -> None:
        """A span that has ended. Returns at once."""
        since_epoch_s = time.time() - time.perf_counter()
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_context(trace, span.span_id, is_remote=False),
                parent=_context(trace, span.parent_id, is_remote=span.kind == "server"),
                resource=self._resource,
                attributes=span.attributes,
                kind=_KINDS[span.kind],
                status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
                start_time=int((span.began_s + since_epoch_s) * 1e9),
                end_time=int((span.ended_s + since_epoch_s) * 1e9),
                instrumentation_scope=self._scope,
            )
        )

    def took(self, seconds: float, attributes: Attributes) -> None:
        """An upstream's answer has ended."""
        self._durations.record(seconds, attributes)

    def used(self, usage: Usage, attributes: Attributes) -> None:
        """An upstream counted its tokens."""
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens:
                self._tokens.record(tokens, {**attributes, "gen_ai.token.type": kind})

    def close(self) -> None:
        """Send what is pending. A collector that does not answer holds up the end for a second."""
        # Threads that nobody waits for at the process's end: the library has no such bound.
        ends = (self._processor.shutdown, self._meters.shutdown)
        threads = [Thread(target=end, name="otlp-close", daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        until = time.monotonic() + _LAST_S
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))


def _context(trace: Trace, span_id: int, *, is_remote: bool) -> SpanContext | None:
    if not span_id:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if trace.is_sampled else TraceFlags.DEFAULT)
    return SpanContext(trace.trace_id, span_id, is_remote, flags)
