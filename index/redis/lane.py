"""A connection that is made again when it breaks, and refuses at once while there is none.

That is the circuit breaker: the first late or lost reply opens it, connecting again, in the
background and ever more slowly, is the probe, and a server that answers the greeting closes it.
"""

import asyncio
import logging
import random

from index.errors import StoreFault
from index.redis.address import Address
from index.redis.wire import Wire

log = logging.getLogger("rejoinder.redis")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Lane:
    """Where calls to one server go. Belongs to one event loop."""

    def __init__(self, address: Address, *, deadline_s: float) -> None:
        self.address = address
        self._deadline_s = deadline_s
        self._wire: Wire | None = None
        self._repair: asyncio.Task[Wire] | None = None
        self._closed = False
        self._fault = f"no connection to Redis at {address} yet"
        """Why there is no wire."""

    def wire(self) -> Wire:
        """The wire that stands. StoreFault at once when there is none; it is being made then."""
        wire = self._wire
        if wire is None or wire.broken:
            self._repair = self._mend()
            raise StoreFault(self._fault if wire is None else wire.broken)
        return wire

    async def up(self, *, timeout_s: float) -> Wire:
        """Wait until there is one. StoreFault when that takes longer."""
        wire = self._wire
        if wire is not None and not wire.broken:
            return wire
        self._repair = self._mend()
        done, _ = await asyncio.wait({self._repair}, timeout=timeout_s)
        if not done:
            raise StoreFault(self._fault)
        return self.wire()

    async def close(self) -> None:
        """Idempotent."""
        self._closed = True
        if self._repair is not None:
            self._repair.cancel()
            await asyncio.gather(self._repair, return_exceptions=True)
        if self._wire is not None:
            self._wire.close()

    def _mend(self) -> asyncio.Task[Wire]:
        if self._closed:
            raise StoreFault("the store is closed")
        if self._repair is None or self._repair.done():
            return asyncio.create_task(self._connect())
        return self._repair

    async def _connect(self) -> Wire:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                wire = await Wire.connect(self.address, deadline_s=self._deadline_s)
            except StoreFault as fault:
                self._fault = str(fault)
                log.debug("%s", fault)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            if self._wire is not None:
                log.warning("connected to Redis at %s again", self.address)
            self._wire = wire
            return wire
