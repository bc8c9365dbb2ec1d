"""Counting the requests of the data port, when they have ended.

What is counted is kept here at first and goes into the metrics once a second, and whenever they are
asked for: an exact hit would otherwise spend more time on its metrics than on its answer.
"""

from collections import defaultdict

from proxy.call import Surface
from proxy.observing.buckets import pour
from proxy.observing.hitrate import LEFT
from proxy.observing.metrics import LATENCY_S, Metrics
from proxy.observing.prices import Prices, cost
from proxy.observing.saving import Saving, savings_of
from proxy.observing.tally import Saved, Times
from proxy.outcome import reasons_of, word
from proxy.port.passage import Passage
from proxy.reply import Answer


class Counting:
    """Counts each passage once. See `proxy.port.passage.Watcher`."""

    def __init__(self, metrics: Metrics, *, prices: Prices) -> None:
        self.prices = prices
        """Replaced by a reload."""
        self._metrics = metrics
        self._requests: defaultdict[tuple[Surface, str, int], int] = defaultdict(int)
        self._reasons: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._times: defaultdict[str, Times] = defaultdict(Times)
        self._saved: defaultdict[tuple[str, str, str], Saved] = defaultdict(Saved)
        """By the model that had answered, the one that the request asks for, which prices may know
        better, and the policy."""

    def note(self, passage: Passage) -> None:
        """A passage has ended."""
        if passage.surface is None:
            return
        answer = passage.answer
        outcome = LEFT if answer is None else word(answer.outcome)
        self._requests[passage.surface, outcome, passage.status] += 1
        times = self._times[outcome]
        times.note(passage.timing, total_s=passage.total_ms / 1000)
        if answer is None or passage.first_ms is None:
            return
        times.first_byte.append(passage.first_ms / 1000)
        for reason in reasons_of(answer.outcome):
            self._reasons[outcome, reason] += 1
        for saving in savings_of(answer):
            self._save(answer, saving, first_s=passage.first_ms / 1000)

    def flush(self) -> None:
        """Put into the metrics what is not there yet."""
        metrics = self._metrics
        for (surface, outcome, status), number in self._requests.items():
            metrics.requests.labels(surface.value, outcome, str(status)).inc(number)
        for (outcome, reason), number in self._reasons.items():
            metrics.reasons.labels(outcome, reason).inc(number)
        for outcome, times in self._times.items():
            pour(times.first_byte, metrics.latency.labels(outcome), bounds=LATENCY_S)
            for phase, seconds in times.phases.items():
                pour(seconds, metrics.phases.labels(outcome, phase), bounds=LATENCY_S)
        for (model, asked, policy), saved in self._saved.items():
            self._tell_saved(model, asked, policy, saved)
        for told in (self._requests, self._reasons, self._times, self._saved):
            told.clear()

    def _save(self, answer: Answer, saving: Saving, *, first_s: float) -> None:
        question = answer.question
        asked, policy = "", ""
        if question is not None:
            asked, policy = question.route.model, question.route.policy_name or ""
        self._saved[saving.model, asked, policy].add(saving, first_s=first_s)

    def _tell_saved(self, model: str, asked: str, policy: str, saved: Saved) -> None:
        metrics = self._metrics
        labels = metrics.names.label(model), policy
        metrics.tokens_saved.labels(*labels, "input").inc(saved.input_tokens)
        metrics.tokens_saved.labels(*labels, "output").inc(saved.output_tokens)
        metrics.seconds_saved.labels(*labels).inc(saved.seconds)
        price = self.prices.of(model, asked)
        if price is not None:
            money = cost(price, saved.usage)
            metrics.money_saved.labels(*labels, price.currency).inc(money)
