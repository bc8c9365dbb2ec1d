"""Counters that vanished: a new generation, in all shards, under which nothing from before counts.

A generation is the time of its making, then a random part, in hexadecimal. Shards only go over to
a later one. So a process that is slow to renew cannot bring an earlier one back, whose purges the
shard has forgotten; and of several that renew at once the latest wins everywhere.
"""

import asyncio
import logging
import random
import secrets

import msgspec

from index.errors import StoreFault
from index.redis import scripts
from index.redis.servers import Servers
from index.redis.shards import HEAD, NUM_SHARDS, name_of

log = logging.getLogger("rejoinder.redis")

_ROUNDS = 8
_TIME_DIGITS = 16


class Counters(msgspec.Struct, frozen=True):
    """What a shard says of itself. Empty strings where it has nothing."""

    generation: str
    believed: bool
    """They were made by the server process that has them."""


async def renew(servers: Servers) -> str:
    """Make the counters of all shards agree; the generation. A no-op when they do already.

    StoreFault when a server is away, or others renew all the time.
    """
    for _ in range(_ROUNDS):
        counters = await _survey(servers)
        generations = {one.generation for one in counters}
        if len(generations) == 1 and all(one.believed for one in counters):
            return generations.pop()
        latest = max(generations)
        target = await _successor(servers, latest)
        answers = await asyncio.gather(*(_adopt(servers, n, target) for n in range(NUM_SHARDS)))
        if set(answers) == {target}:
            if latest:
                log.warning("the Redis store begins anew: nothing stored before counts any more")
        else:
            await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - somebody else renews
    raise StoreFault("the counters in Redis do not come to rest")


async def _survey(servers: Servers) -> list[Counters]:
    async def look(shard: int) -> Counters:
        wire = servers.wire(shard)
        found = await wire.call("HMGET", f"{name_of(shard)}:state", "generation", "run")
        generation, run = ((value or b"").decode() for value in found)
        return Counters(generation, bool(generation) and run == wire.run_id)

    return await asyncio.gather(*map(look, range(NUM_SHARDS)))


async def _successor(servers: Servers, latest: str) -> str:
    seconds, microseconds = await servers.wire(HEAD).call("TIME")
    time_us = int(seconds) * 1_000_000 + int(microseconds)
    if latest:
        time_us = max(time_us, int(latest[:_TIME_DIGITS], 16) + 1)
    return f"{time_us:0{_TIME_DIGITS}x}{secrets.token_hex(8)}"


async def _adopt(servers: Servers, shard: int, target: str) -> str:
    time_us = int(target[:_TIME_DIGITS], 16)
    answer: bytes = await scripts.ADOPT.run(servers.wire(shard), name_of(shard), target, time_us)
    return answer.decode()
