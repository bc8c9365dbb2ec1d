"""A collector of OpenTelemetry on loopback, which reads what it is sent as the protocol says."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass
class Collector:
    """What came, in the order in which it came."""

    url: str = ""
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def spans(self) -> list:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def points(self, name: str) -> list:
        """Of one metric, the latest of each set of attributes."""
        latest = {}
        for request in self.metrics:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            for point in metric.histogram.data_points:
                                key = tuple(sorted(attributes(point).items()))
                                latest[key] = point
        return list(latest.values())


def attributes(of) -> dict:
    """Of a span or a point, as plain values."""
    return {one.key: _plain(one.value) for one in of.attributes}


def _plain(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_plain(one) for one in value.array_value.values)
    return getattr(value, kind)


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """Collect until the end of the block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.headers.append({k.lower(): v for k, v in self.headers.items()})
            if self.path == "/v1/traces":
                collector.traces.append(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse()
            else:
                assert self.path == "/v1/metrics", self.path
                collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
                answer = ExportMetricsServiceResponse()
            data = answer.SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
