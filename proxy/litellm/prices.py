"""What LiteLLM's config says that models cost, in this proxy's unit."""

from proxy.litellm.section import Section

_PER_TOKEN = {
    "input": "input_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "output": "output_cost_per_token",
}
_MILLION = 1_000_000
_DIGITS = 6
"""Enough for any price; what is behind them comes of binary fractions."""


def price_of(*places: Section) -> tuple[tuple[str, float], ...]:
    """For a million tokens, by kind; the first place that names one counts. Empty: none is named.
    LiteLLM takes prices in `model_info` and in `litellm_params`, for one token each."""
    found: dict[str, float] = {}
    for place in places:
        for kind, name in _PER_TOKEN.items():
            price = place.number(name)
            if price is not None:
                found.setdefault(kind, round(price * _MILLION, _DIGITS))
    return tuple(found.items())
