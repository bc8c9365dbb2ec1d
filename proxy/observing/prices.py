"""What tokens cost. Pure."""

from collections.abc import Mapping

from proxy.call import Usage
from proxy.settings.glob import compile_globs
from proxy.settings.observing import Price

_MILLION = 1_000_000


class Prices:
    """The price table of a config, compiled."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        """By patterns of models' names; the first that fits counts."""
        self._prices = tuple((compile_globs(glob), price) for glob, price in prices.items())

    def of(self, *names: str) -> Price | None:
        """Of a model by its names, the best one first; None where the table has none of them."""
        for name in names:
            for glob, price in self._prices:
                if glob.fullmatch(name) is not None:
                    return price
        return None


def cost(price: Price, usage: Usage) -> float:
    """In the price's currency."""
    cached = min(usage.cached_tokens, usage.input_tokens)
    of_cached = price.input if price.cached_input is None else price.cached_input
    of_input = (usage.input_tokens - cached) * price.input + cached * of_cached
    return (of_input + usage.output_tokens * price.output) / _MILLION
