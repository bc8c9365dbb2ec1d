"""What a fresh answer would take. Pure."""

import msgspec

from proxy.call import Usage
from proxy.explaining.views import Cost
from proxy.observing.prices import Prices, cost
from proxy.question import Question
from proxy.tenancy.quotas import guess_tokens


class Costs:
    """Reckons with what is known: a stored answer's own count, or a guess."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices

    def of(self, question: Question, stored: tuple[int, int] | None) -> Cost:
        """`stored`: tokens of request and answer, as the upstream counted them before."""
        call = question.call
        if stored is not None and any(stored):
            num_input, num_output, basis = *stored, "stored"
        else:
            num_input = guess_tokens(call.body, {})
            num_output, basis = guess_tokens(b"", call.fields), "guess"
        told = Cost(input_tokens=num_input, output_tokens=num_output, basis=basis)
        price = self._prices.of(question.route.model, call.model)
        if price is None:
            return told
        amount = cost(price, Usage(input_tokens=num_input, output_tokens=num_output))
        return msgspec.structs.replace(told, amount=amount, currency=price.currency)
