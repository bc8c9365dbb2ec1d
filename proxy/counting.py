"""Counting the requests of the data port, when they have ended.

What is counted is kept here at first and goes into the metrics once a second, and whenever they are
asked for: an exact hit would otherwise spend more time on its metrics than on its answer.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from proxy.metrics import LATENCY_S, Metrics
from proxy.observing.names import Names
from proxy.observing.prices import Prices, cost
from proxy.observing.saving import Saving, savings_of
from proxy.observing.tally import Saved, Times
from proxy.outcome import reasons_of, word
from proxy.passage import Passage
from proxy.reply import Answer

LEFT = "left"
"""The outcome of a request whose client hung up before there was an answer; its status is 0."""


class _Of(NamedTuple):
    """Whose tokens they were. As a key of a dict it is hashed for each hit, so no Struct."""

    model: str
    asked: str
    """The model that the request asks its upstream for; prices may know it by this name only."""
    policy: str


class Counting:
    """Counts each passage once. See `proxy.passage.Watcher`."""

    def __init__(self, metrics: Metrics, *, prices: Prices) -> None:
        self.prices = prices
        """Replaced by a reload."""
        self._metrics = metrics
        self._names = Names()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, Times] = {}
        self._saved: defaultdict[_Of, Saved] = defaultdict(Saved)

    def note(self, passage: Passage) -> None:
        """A passage has ended."""
        if passage.surface is None:
            return
        answer = passage.answer
        outcome = LEFT if answer is None else word(answer.outcome)
        self._requests[passage.surface.value, outcome, passage.status] += 1
        times = self._times.get(outcome)
        if times is None:
            times = self._times[outcome] = Times(LATENCY_S)
        for phase, spent_s in passage.timing.spent_s().items():
            times.phase(phase).observe(spent_s)
        times.phase("total").observe(passage.total_ms / 1000)
        if answer is None or passage.first_ms is None:
            return
        times.first_byte.observe(passage.first_ms / 1000)
        for reason in reasons_of(answer.outcome):
            self._reasons[outcome, reason] += 1
        for saving in savings_of(answer):
            self._save(answer, saving, first_s=passage.first_ms / 1000)

    def flush(self) -> None:
        """Put into the metrics what is not there yet."""
        metrics = self._metrics
        for (surface, outcome, status), number in self._requests.items():
            metrics.requests.labels(surface, outcome, str(status)).inc(number)
        for (outcome, reason), number in self._reasons.items():
            metrics.reasons.labels(outcome, reason).inc(number)
        for outcome, times in self._times.items():
            times.first_byte.pour(metrics.latency.labels(outcome))
            for phase, pending in times.phases.items():
                pending.pour(metrics.phases.labels(outcome, phase))
        for whose, saved in self._saved.items():
            self._tell_saved(whose, saved)
        for told in (self._requests, self._reasons, self._times, self._saved):
            told.clear()

    def _save(self, answer: Answer, saving: Saving, *, first_s: float) -> None:
        question = answer.question
        asked = "" if question is None else question.route.model
        policy = "" if question is None else question.route.policy_name or ""
        whose = _Of(saving.model, asked, policy)
        self._saved[whose].add(saving.usage, max(saving.made_in_s - first_s, 0.0))

    def _tell_saved(self, whose: _Of, saved: Saved) -> None:
        metrics = self._metrics
        labels = self._names.label(whose.model), whose.policy
        metrics.tokens_saved.labels(*labels, "input").inc(saved.input_tokens)
        metrics.tokens_saved.labels(*labels, "output").inc(saved.output_tokens)
        metrics.seconds_saved.labels(*labels).inc(saved.seconds)
        price = self.prices.of(whose.model, whose.asked)
        if price is not None:
            money = cost(price, saved.usage)
            metrics.money_saved.labels(*labels, price.currency).inc(money)
