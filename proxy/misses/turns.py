"""Of several replicas that miss the same, one makes the answer, and the others wait for it.

A turn is a lease on the key. Whoever waits looks the answer up when the lease ends: it then counts
like any other, by the purges of that moment. No answer there (the upstream failed, or it may not
be kept), no lease in time, no store: then this replica makes its own.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from index.errors import StoreFault
from index.lease import Granted, Lease, Leases
from proxy.answer import payload as payloads
from proxy.answer.control import fits
from proxy.answer.payload import Payload
from proxy.lookup.cache import Cache
from proxy.question import Question

log = logging.getLogger("rejoinder.turns")


class Turns:
    """Turns of all who share one store."""

    def __init__(self, leases: Leases, *, cache: Cache, patience_s: float) -> None:
        """`patience_s`: how long a turn lasts, and how long others wait for it."""
        self._leases = leases
        self._cache = cache
        self._patience_s = patience_s

    @contextlib.asynccontextmanager
    async def take(self, question: Question) -> AsyncIterator[Payload | None]:
        """Wait for a turn, which lasts until the block ends: None.

        Or the answer, when somebody else has made it meanwhile; there is no turn then.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        lease = await self._acquire(question.key, looked=False)
        while lease is None:
            if not await self._wait(question.key, until - loop.time()):
                lease = Granted()
                break
            made = await self._made(question)
            if made is not None:
                yield made
                return
            lease = await self._acquire(question.key, looked=True)
        try:
            yield None
        finally:
            await _release(lease)

    async def _acquire(self, key: str, *, looked: bool) -> Lease | None:
        try:
            return await self._leases.acquire(key, ttl_s=self._patience_s, looked=looked)
        except StoreFault as fault:
            log.debug("no lease: %s", fault)
            return Granted()

    async def _wait(self, key: str, patience_s: float) -> bool:
        return patience_s > 0 and await self._leases.wait(key, timeout_s=patience_s)

    async def _made(self, question: Question) -> Payload | None:
        hit = (await self._cache.find_exact(question)).hit
        payload = None if hit is None else payloads.decode(hit.entry.payload)
        if payload is None or not fits(payload.varied, question.call.headers):
            return None
        return payload


class NoTurns:
    """Nobody else would do the same."""

    @contextlib.asynccontextmanager
    async def take(self, question: Question) -> AsyncIterator[Payload | None]:
        """See `Turns.take`."""
        yield None


async def _release(lease: Lease) -> None:
    try:
        await lease.release()
    except StoreFault as fault:
        log.debug("a lease was not released, and will expire: %s", fault)
