"""What the upstreams' answers cost."""

from typing import Protocol

from proxy.answer.grammar import Bill
from proxy.call import Surface, Usage
from proxy.observing.metrics import Metrics
from proxy.observing.prices import Prices, cost
from proxy.request.routing import Route


class Used(Protocol):
    """Told of tokens that an upstream counted."""

    def __call__(self, surface: Surface, *, model: str, answered_by: str, usage: Usage) -> None:
        """`model`: as it was asked for; `answered_by`: as the upstream calls it."""
        ...


class Spending:
    """Counts the tokens of answers, kept or not, and, where the price table knows the model, their
    cost."""

    def __init__(self, metrics: Metrics, *, prices: Prices) -> None:
        self.prices = prices
        """Replaced by a reload."""
        self.tell: Used = _untold
        """Told of the tokens too. Replaced by a reload."""
        self._metrics = metrics

    def note(self, bill: Bill, *, surface: Surface, upstream: str, route: Route) -> None:
        """An upstream answered, for whomever: also in the background, and for audits."""
        usage = bill.counted
        if usage is None:
            return
        model = bill.model or route.model
        self._metrics.counted(upstream, usage)
        self.tell(surface, model=route.model, answered_by=model, usage=usage)
        price = self.prices.of(model, route.model)
        if price is not None:
            labels = self._metrics.names.label(model), route.policy_name or "", price.currency
            self._metrics.money_spent.labels(*labels).inc(cost(price, usage))


def _untold(surface: Surface, *, model: str, answered_by: str, usage: Usage) -> None:
    """Nobody wants to know."""
