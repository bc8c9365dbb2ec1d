"""Counting the answers of the data port."""

from prometheus_client import Counter, Histogram

from proxy.call import Surface
from proxy.metrics import Metrics
from proxy.outcome import entries_of, reasons_of, word
from proxy.reply import Answer

_MAX_MODELS = 100
"""Clients and upstreams name models as they like, and each name stays in the metrics for good."""
_OTHER = "other"


class Counting:
    """Counts each answer once. Finding a metric by its labels costs more than counting, so those of
    the usual answers are remembered; there are as many as labels have values, which are few: models
    beyond the first hundred are counted together, as `other`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._requests: dict[tuple[Surface, str, int], Counter] = {}
        self._latency: dict[str, Histogram] = {}
        self._saved: dict[str, tuple[Counter, Counter]] = {}

    def count(self, surface: Surface, answer: Answer, *, elapsed_s: float) -> None:
        """`elapsed_s`: until the answer began."""
        name = word(answer.outcome)
        self._counter(surface, name, answer.reply.status).inc()
        self._histogram(name).observe(elapsed_s)
        for reason in reasons_of(answer.outcome):
            self._metrics.reasons.labels(name, reason).inc()
        for entry in entries_of(answer.outcome):
            of_input, of_output = self._tokens(entry.model)
            of_input.inc(entry.input_tokens)
            of_output.inc(entry.output_tokens)

    def _counter(self, surface: Surface, name: str, status: int) -> Counter:
        key = surface, name, status
        if key not in self._requests:
            self._requests[key] = self._metrics.requests.labels(surface.value, name, str(status))
        return self._requests[key]

    def _histogram(self, name: str) -> Histogram:
        if name not in self._latency:
            self._latency[name] = self._metrics.latency.labels(name)
        return self._latency[name]

    def _tokens(self, model: str) -> tuple[Counter, Counter]:
        if model not in self._saved and len(self._saved) >= _MAX_MODELS:
            model = _OTHER
        if model not in self._saved:
            saved = self._metrics.tokens_saved
            self._saved[model] = saved.labels(model, "input"), saved.labels(model, "output")
        return self._saved[model]
