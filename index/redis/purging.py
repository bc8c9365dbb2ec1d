"""Purges: numbered by one shard, written to all, acknowledged by all before they return."""

import asyncio

import msgspec

from index.entry import Snapshot
from index.errors import StoreFault
from index.purges import tags_of
from index.redis.door import Door
from index.redis.scripts import PURGE
from index.redis.shards import HEAD, NUM_SHARDS, name_of
from index.redis.wire import Argument, Refused, Wire
from index.store import Purge, Purged

MAX_COUNTED = 256
"""A shard looks at the entries that a real purge covers only where they are no more than that."""
MAX_FREED = 64
"""A shard frees what a hard purge covers at once where it is no more; a sweep frees the rest."""


class Acknowledged(msgspec.Struct, frozen=True):
    """A purge that is in all shards. `snapshot`: one that has seen it."""

    reply: Purged
    snapshot: Snapshot


async def purge_now(door: Door, purge: Purge, *, now: float, num_replicas: int) -> Acknowledged:
    """Purge in every shard. StoreFault when one has not acknowledged, or too few replicas have.

    Until then the purge may or may not count; it can be repeated.
    """
    fault = StoreFault("a server is away, or slow")
    patience_s = door.servers.patient_s
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    return await _purge(door, purge, now=now, num_replicas=num_replicas)
                except Refused as refusal:
                    fault = refusal
                    await door.recover(refusal)
    except TimeoutError:
        message = f"the purge is not acknowledged after {patience_s:g} s: {fault}"
        raise StoreFault(message) from fault


async def level(door: Door) -> None:
    """Bring S in all shards to one value, where a purge did not get to all of them."""
    await purge_now(door, Purge(), now=0.0, num_replicas=0)


async def _purge(door: Door, purge: Purge, *, now: float, num_replicas: int) -> Acknowledged:
    wires = await door.servers.purging_wires()
    arguments: tuple[Argument, ...] = (
        int(purge.soft), repr(now), MAX_COUNTED, MAX_FREED, *tags_of(purge),
    )  # fmt: skip
    first = await PURGE.run(wires[HEAD], name_of(HEAD), "", "", *arguments)
    generation, sequence = first[0], first[1]
    others = (
        PURGE.run(wires[shard], name_of(shard), generation, sequence, *arguments)
        for shard in range(NUM_SHARDS)
        if shard != HEAD
    )
    replies = [first, *await asyncio.gather(*others)]
    if num_replicas:
        for wire in set(wires):
            await _wait(wire, num_replicas, patience_s=door.servers.patient_s)
    counts = [int(one[2]) for one in replies]
    reply = Purged(
        matched=None if -1 in counts else sum(counts),
        entries=sum(int(one[3]) for one in replies),
        sequence=int(sequence),
    )
    snapshot = Snapshot(generation=generation.decode(), sequence=int(sequence))
    return Acknowledged(reply, snapshot)


async def _wait(wire: Wire, num_replicas: int, *, patience_s: float) -> None:
    """The replicas have what went over this wire before."""
    reached = int(await wire.call("WAIT", num_replicas, int(patience_s * 500)))
    if reached < num_replicas:
        raise StoreFault(
            f"the purge is in Redis at {wire.address}, but only {reached} of the {num_replicas} "
            "replicas asked for have acknowledged it"
        )
