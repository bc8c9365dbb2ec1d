"""The hit rate. The dashboard's script, Grafana's panels and the alerts compute the same; tests
compare them with this."""

from collections.abc import Mapping

HITS = frozenset({"exact", "semantic", "stale"})
"""Outcomes that waited for no upstream. One that joined a request in flight did, and is no hit."""
LEFT = "left"
"""The outcome of a request whose client hung up before there was an answer; its status is 0."""


def hit_rate(requests: Mapping[str, int]) -> float | None:
    """The share of the answers that came from the cache. `requests`: by outcome. None where none
    was answered."""
    answered = sum(number for outcome, number in requests.items() if outcome != LEFT)
    hits = sum(requests.get(outcome, 0) for outcome in HITS)
    return hits / answered if answered else None
