"""How keys are spread: over a fixed number of hash tags, each with its own copy of the purge table.

One script can then read an entry and all purges that may cover it in one slot, in one round trip,
on a single server and in a cluster. The number is fixed: with another one, keys would be sought
where they are not (as misses, never as wrong answers).
"""

import zlib

NUM_SHARDS = 16
"""Also known to lua/shard.lua. A purge writes so many copies; a cluster can have so many nodes."""
HEAD = 0
"""The shard that numbers the purges."""


def shard_of(key: str) -> int:
    """Which shard a key belongs to."""
    return zlib.crc32(key.encode()) % NUM_SHARDS


def name_of(shard: int) -> str:
    """The name of a shard in Redis; its keys begin with it."""
    return f"rejoinder:{{{shard}}}"
