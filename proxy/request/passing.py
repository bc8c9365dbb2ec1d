"""Headers that are new with each request and decide nothing: ids of traces and of requests."""

from collections.abc import Iterable, Mapping

from proxy.call import Headers
from proxy.request.headers import OF_TRACES, is_sentrys_own
from proxy.settings import config as written

_BAGGAGE = b"baggage"
"""Decides nothing where only Sentry put something in."""


class Passing:
    """Those of one config. What its rules look at decides something, whatever it is."""

    def __init__(
        self, routes: Iterable[written.Route], policies: Mapping[str, written.Policy]
    ) -> None:
        in_routes = (name for route in routes for name in route.match.header)
        rules = (rule for policy in policies.values() for rule in policy.tags)
        in_tags = (rule.header for rule in rules if rule.header is not None)
        looked_at = {name.lower().encode("latin-1") for name in (*in_routes, *in_tags)}
        self._names = (OF_TRACES | {_BAGGAGE}) - looked_at

    def without(self, headers: Headers) -> Headers:
        """The others; two requests that have these in common are decided alike."""
        names = self._names
        return tuple([pair for pair in headers if pair[0] not in names or _says_more(*pair)])


def _says_more(name: bytes, value: bytes) -> bool:
    return name == _BAGGAGE and not is_sentrys_own(name, value)
