"""The servers of one upstream: how each is doing, who is next, and whether there is room."""

import time
from collections.abc import Callable, Collection, Sequence
from typing import assert_never

import msgspec

from proxy.settings.upstreams import Upstream
from proxy.upstreams.admission import Admission
from proxy.upstreams.balancing import least_busy, prefix_affinity, round_robin
from proxy.upstreams.base import Server, UpstreamRequest
from proxy.upstreams.breaker import Breaker
from proxy.upstreams.prefix import prefix_of


class Member:
    """One server, and what is remembered of it."""

    __slots__ = ("breaker", "in_flight", "name", "server", "turn", "weight")

    def __init__(self, server: Server, *, weight: int, breaker: Breaker) -> None:
        self.server = server
        self.name = server.name
        self.weight = weight
        self.breaker = breaker
        self.in_flight = 0
        """Requests whose answers have not ended."""
        self.turn = 0


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is doing, for people and metrics."""

    upstream: str
    server: str
    left_alone: bool
    """Nothing is sent to it for a while, since most requests to it failed."""
    in_flight: int


class Pool:
    """See `proxy.settings.upstreams.Upstream`: `balance`, `max_in_flight`, `queue`."""

    def __init__(
        self,
        upstream: str,
        servers: Sequence[Server],
        config: Upstream,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """At least one server, in the order of the config's base URLs."""
        assert servers
        weights = [base.weight for base in config.bases] or [1]
        has_others = len(servers) > 1
        self.upstream = upstream
        self.members = tuple(
            Member(server, weight=weight, breaker=Breaker(clock=clock, has_others=has_others))
            for server, weight in zip(servers, weights, strict=True)
        )
        self.admission = Admission(upstream, max_in_flight=config.max_in_flight, queue=config.queue)
        self._balance = config.balance

    def order(self, request: UpstreamRequest, *, tried: Collection[Member]) -> list[Member]:
        """The servers that may be asked now, the best first, those of `tried` last."""
        members = [member for member in self.members if member.breaker.passes]
        if len(members) < 2:
            return members
        ordered = [members[index] for index in self._order(members, request)]
        return sorted(ordered, key=lambda member: member in tried) if tried else ordered

    def _order(self, members: Sequence[Member], request: UpstreamRequest) -> list[int]:
        match self._balance:
            case "round_robin":
                return round_robin(members)
            case "least_busy":
                return least_busy(members)
            case "prefix_affinity":
                body = request.body if isinstance(request.body, bytes) else b""
                return prefix_affinity(members, prefix_of(body))
            case _:
                assert_never(self._balance)

    def has_other(self, tried: Collection[Member]) -> bool:
        """There is a server that was not tried and may be."""
        return any(one not in tried and one.breaker.passes for one in self.members)

    def leave(self, member: Member) -> None:
        """An answer of that server has ended, and its place with it."""
        member.in_flight -= 1
        self.admission.leave()

    def states(self) -> tuple[ServerState, ...]:
        """How the servers are doing."""
        return tuple(
            ServerState(
                upstream=self.upstream,
                server=member.name,
                left_alone=member.breaker.is_open,
                in_flight=member.in_flight,
            )
            for member in self.members
        )
