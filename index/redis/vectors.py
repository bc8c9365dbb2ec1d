"""Vectors in Redis, beside the entries: a vector set for each scope and embedder.

A set lies in the shard of its scope, an entry in that of its key, so that a search is one command
to one server. Scopes hold the tenant, the namespace and all that must be equal; as sets of their
own they cost nothing to tell apart, where a filter over one large set would search through what the
others hold. Within a set, a filter passes over what is past its time.

    stored     -> its script notes it as owed; VADD, by whoever stored it, who then strikes it out
    still owed -> who sweeps puts it in: the process died, or Redis was away at that moment
    freed      -> its script notes it in the shard (lua/writing.lua); who sweeps takes it out (VREM)
    meanwhile  -> it may be found, and is refused, since every candidate is looked up in the store
"""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from index import record
from index.entry import Entry
from index.errors import StoreFault
from index.nearest.vectorplace import Candidate, SemanticStats
from index.redis.door import Door
from index.redis.following import fetch
from index.redis.servers import Servers
from index.redis.shards import NUM_SHARDS, name_of, shard_of
from index.redis.wire import Argument, Refused, info

if TYPE_CHECKING:
    from index.nearest.vectorplace import Vector

log = logging.getLogger("rejoinder.redis")

SPARE_S = 600
"""A set is dropped so long after the last of its entries."""
VECTOR_SPARE_BYTES = 1100
"""What an element of a set takes beside its vector: name, prompt, links (measured)."""
_LEAST_VERSION = (8, 2)
"""The first whose searches return attributes."""
_MAX_ADDING = 1024
"""Additions under way; further ones are left out while Redis cannot keep up."""
_STEP = 200
_PATIENCE_S = 60
"""So long an addition may be under way by whoever stored the entry."""


class _Attributes(msgspec.Struct, frozen=True):
    """What a set holds of an entry beside its vector."""

    prompt: str
    until: float
    """`keep_until` of the entry."""


_READ = msgspec.json.Decoder(_Attributes)


class RedisVectors:
    """See `index.nearest.vectorplace.VectorPlace`. Belongs to one event loop."""

    follows = False

    def __init__(
        self, door: Door, *, identity: str, dimension: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._door = door
        self._identity = identity
        self._space = space_of(identity)
        self._embedding_bytes = 4 * dimension
        self._clock = clock
        self._adding: set[asyncio.Task[None]] = set()

    def add(self, entry: Entry) -> None:
        if entry.embedder != self._identity or len(entry.embedding) != self._embedding_bytes:
            return
        if not entry.scope or len(self._adding) >= _MAX_ADDING:
            return
        task = asyncio.get_running_loop().create_task(self._add(entry))
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)

    def remove(self, key: str) -> None:
        """The scripts that free entries see to it."""

    def is_behind(self, scope: str) -> bool:
        return False

    def clear(self) -> None:
        """What is held is of all processes."""

    async def search(self, scope: str, vector: "Vector", *, limit: int) -> tuple[Candidate, ...]:
        found = await self._call(
            scope,
            ("VSIM",),
            "FP32", vector.astype("<f4").tobytes(), "WITHSCORES", "WITHATTRIBS", "COUNT", limit,
            "FILTER", f".until >= {self._clock():.3f}",
        )  # fmt: skip
        return tuple(_candidates(found))

    async def settle(self) -> None:
        """Returns when what was added before can be found."""
        await asyncio.gather(*self._adding)

    def stats(self) -> SemanticStats:
        return SemanticStats(entries=0, scopes=0)

    async def close(self) -> None:
        for task in self._adding:
            task.cancel()
        await asyncio.gather(*self._adding, return_exceptions=True)

    async def _add(self, entry: Entry) -> None:
        try:
            await _put_in(self._door, entry, now=self._clock())
        except Refused as refusal:
            await self._door.recover(refusal)
        except StoreFault as fault:
            log.warning("an answer is not found by its meaning yet: %s", fault)

    async def _call(self, scope: str, command: tuple[str], *arguments: Argument) -> list[bytes]:
        shard = shard_of(scope)
        try:
            found: list[bytes] = await self._door.servers.wire(shard).call(
                *command, set_of(scope, self._space), *arguments
            )
        except Refused as refusal:
            await self._door.recover(refusal)
            raise
        return found


def _candidates(found: list[bytes]) -> Iterator[Candidate]:
    """Of an answer of VSIM: name, score and attributes of each element, one after the other."""
    for name, score, attributes in zip(found[::3], found[1::3], found[2::3], strict=True):
        if not attributes:
            continue
        # What others wrote into our set is passed over.
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield Candidate(
                key=name.decode(),
                prompt=_READ.decode(attributes).prompt,
                # Redis maps the cosine to [0, 1].
                similarity=2 * float(score) - 1,
            )


async def has_vector_sets(servers: Servers) -> bool:
    """Whether every server has them. Raises StoreFault."""
    for wire in {servers.wire(shard) for shard in range(NUM_SHARDS)}:
        version = info(await wire.call("INFO", "server"))["redis_version"].split(".")
        known = await wire.call("COMMAND", "INFO", "VADD")
        if tuple(map(int, version[:2])) < _LEAST_VERSION or known in ([], [None]):
            log.info("%s has no vector sets: each worker keeps all vectors", wire.address)
            return False
    return True


def space_of(identity: str) -> str:
    """A short name of an embedder's vectors; empty for none."""
    return hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else ""


def set_of(scope: str, space: str) -> str:
    """Name of a vector set in Redis."""
    return f"{name_of(shard_of(scope))}:vectors:{space}:{scope}"


async def put_in_owed(door: Door, *, now: float) -> int:
    """Put in the vectors that were owed for long; how many. By who sweeps. Raises StoreFault."""
    put_in = 0
    for shard in range(NUM_SHARDS):
        while page := await _owed(door, shard):
            for key in page:
                stored = await fetch(door, key)
                entry = record.decode(stored) if stored else None
                if entry is None:
                    await _strike_out(door, key)
                    continue
                await _put_in(door, entry, now=now)
                put_in += 1
    return put_in


async def _owed(door: Door, shard: int) -> list[str]:
    wire = door.servers.wire(shard)
    seconds, _ = await wire.call("TIME")
    found: list[bytes] = await wire.call(
        "ZRANGE", f"{name_of(shard)}:owed", "-inf", (int(seconds) - _PATIENCE_S) * 10**6,
        "BYSCORE", "LIMIT", 0, _STEP,
    )  # fmt: skip
    return [key.decode() for key in found]


async def _put_in(door: Door, entry: Entry, *, now: float) -> None:
    wire = door.servers.wire(shard_of(entry.scope))
    name = set_of(entry.scope, space_of(entry.embedder))
    attributes = msgspec.json.encode(_Attributes(entry.prompt, entry.keep_until))
    lifetime_s = max(1, int(entry.keep_until - now) + SPARE_S)
    await wire.call(
        "VADD", name, "FP32", entry.embedding, entry.key, "NOQUANT", "SETATTR", attributes
    )
    # Two commands: whichever of them makes the time longer counts.
    await wire.call("EXPIRE", name, lifetime_s, "NX")
    await wire.call("EXPIRE", name, lifetime_s, "GT")
    await _strike_out(door, entry.key)


async def _strike_out(door: Door, key: str) -> None:
    shard = shard_of(key)
    await door.servers.wire(shard).call("ZREM", f"{name_of(shard)}:owed", key)


async def take_out_freed(door: Door) -> int:
    """Take the vectors of entries that were freed out of their sets; how many. By who sweeps."""
    taken = 0
    for shard in range(NUM_SHARDS):
        while page := await _freed(door, shard):
            for one in page:
                space, scope, key = one.decode().split(":")
                taken += await _take_out(door, space=space, scope=scope, key=key)
    return taken


async def _freed(door: Door, shard: int) -> list[bytes]:
    found: list[bytes] | None = await door.servers.wire(shard).call(
        "LPOP", f"{name_of(shard)}:unplaced", _STEP
    )
    return found or []


async def _take_out(door: Door, *, space: str, scope: str, key: str) -> int:
    """Not what was stored anew in the same place. What is stored in the very moment between is lost
    to searches by meaning, not to others."""
    shard = shard_of(key)
    now = await door.servers.wire(shard).call(
        "HMGET", f"{name_of(shard)}:entry:{key}", "space", "scope"
    )
    if now == [space.encode(), scope.encode()]:
        return 0
    removed: int = await door.servers.wire(shard_of(scope)).call("VREM", set_of(scope, space), key)
    return removed
