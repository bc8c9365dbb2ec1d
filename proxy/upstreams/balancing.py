"""Whose turn it is among servers that are alike. Pure but for the turns that are counted.

Each way orders all servers: the first is to be asked, the others follow where it cannot be reached.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Protocol

MAX_SHARE = 1.5
"""Prefix affinity: a server that has more than this times its fair share of all requests in flight
is passed over (consistent hashing with bounded loads, Mirrokni, Thorup and Zadimoghaddam, 2018)."""
SLACK = 4
"""Requests in flight that any server may have, however few the others have."""


class Balanced(Protocol):
    """What is looked at of a server."""

    name: str
    weight: int
    in_flight: int
    turn: int
    """Of the round robin alone; 0 at first."""


def round_robin(servers: Sequence[Balanced]) -> list[int]:
    """Positions in the order of asking: in turn, in proportion to the weights and well mixed.

    Each server gains its weight a round, and the one that is chosen pays what all have gained.
    """
    for server in servers:
        server.turn += server.weight
    order = sorted(range(len(servers)), key=lambda i: -servers[i].turn)
    if order:
        servers[order[0]].turn -= sum(server.weight for server in servers)
    return order


def least_busy(servers: Sequence[Balanced]) -> list[int]:
    """By requests in flight to a unit of weight; among equals in turn."""
    order = round_robin(servers)
    return sorted(order, key=lambda i: servers[i].in_flight / servers[i].weight)


def prefix_affinity(servers: Sequence[Balanced], prefix: bytes) -> list[int]:
    """The same prefix prefers the same servers in the same order, whatever other servers come and
    go (weighted rendezvous hashing); those with far more in flight than the others come last."""
    load = 1 + sum(server.in_flight for server in servers)
    weight = sum(server.weight for server in servers)

    def place(index: int) -> tuple[bool, float]:
        server = servers[index]
        fair = load * server.weight / weight
        is_crowded = server.in_flight >= max(SLACK, MAX_SHARE * fair)
        return is_crowded, -_score(server, prefix)

    return sorted(range(len(servers)), key=place)


def _score(server: Balanced, prefix: bytes) -> float:
    """Large with a chance that is in proportion to the weight."""
    digest = hashlib.sha256(server.name.encode() + b"\n" + prefix).digest()
    drawn = (int.from_bytes(digest[:6]) + 0.5) / 2**48  # within (0, 1)
    return -server.weight / math.log(drawn)
