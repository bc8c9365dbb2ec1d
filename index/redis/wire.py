"""One connection to a Redis: calls go out as they come, replies are matched in order."""

import asyncio
from collections import deque
from typing import Any, cast

import hiredis

from index.errors import StoreFault
from index.redis.address import Address

Argument = str | bytes | int


class Refused(StoreFault):
    """Redis answered with an error. `word` is its first word, such as `NOSCRIPT`."""

    @property
    def word(self) -> str:
        """What kind of error."""
        return str(self).partition(" ")[0]


class Wire(asyncio.Protocol):
    """Made by `connect`; of no use any more once it is `broken`.

    A reply that is later than the deadline breaks the wire: whoever waits gets a StoreFault, what
    was sent may still happen, and what would be answered is never read.
    """

    def __init__(self, address: Address, *, deadline_s: float) -> None:
        self.address = address
        self.deadline_s = deadline_s
        self.run_id = ""
        """Of the server process at the other end."""
        self.broken = ""
        """Why it is of no use any more; empty while it stands."""
        self._loop = asyncio.get_running_loop()
        self._replies = hiredis.Reader(replyError=Refused)
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._transport: asyncio.WriteTransport | None = None
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(cls, address: Address, *, deadline_s: float) -> "Wire":
        """Connect and sign in. StoreFault when that fails or is late."""
        wire = cls(address, deadline_s=deadline_s)
        try:
            async with asyncio.timeout(deadline_s):
                await address.connect(wire)
                await wire._sign_in()
        except (OSError, TimeoutError) as error:
            wire.close()
            raise StoreFault(
                f"no connection to Redis at {address}: {str(error) or 'late'}"
            ) from error
        except Refused as refusal:
            wire.close()
            raise StoreFault(f"Redis at {address} lets nobody in: {refusal}") from refusal
        except BaseException:  # a refusal, or whoever wanted it has left
            wire.close()
            raise
        return wire

    def call(self, *parts: Argument) -> asyncio.Future[Any]:
        """Send a command; its reply. StoreFault at once on a broken wire.

        A command waits for none before it, but replies come in order: nothing that blocks in
        Redis may go over a wire that others use.
        """
        if self.broken or self._transport is None:
            raise StoreFault(self.broken or "not connected")
        reply = self._loop.create_future()
        now = self._loop.time()
        self._waiting.append((now, reply))
        # Their type leaves no room for arguments of several kinds; their code does.
        self._transport.write(hiredis.pack_command(parts))  # type: ignore[arg-type]  # as said above
        if self._watch is None:
            self._watch = self._loop.call_at(now + self.deadline_s, self._look)
        return reply

    def close(self) -> None:
        """Whoever still waits gets a StoreFault."""
        self._break(f"the connection to Redis at {self.address} is closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._break(f"Redis at {self.address} hung up: {exc or 'end of stream'}")

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            self._replies.feed(data)
            while self._waiting and (reply := self._replies.gets()) is not False:
                self._settle(reply)
        except hiredis.ProtocolError as error:
            self._break(f"what answers at {self.address} is no Redis: {error}")

    def _settle(self, reply: Any) -> None:
        _, waiter = self._waiting.popleft()
        if waiter.done():
            return  # whoever asked has left
        if isinstance(reply, Refused):
            waiter.set_exception(reply)
        else:
            waiter.set_result(reply)

    def _look(self) -> None:
        """Break the wire if the oldest call is overdue, else look again when it would be."""
        self._watch = None
        if not self._waiting:
            return
        due = self._waiting[0][0] + self.deadline_s
        if due <= self._loop.time():
            late_ms = self.deadline_s * 1000
            self._break(f"Redis at {self.address} did not answer within {late_ms:.0f} ms")
        else:
            self._watch = self._loop.call_at(due, self._look)

    def _break(self, why: str) -> None:
        if self.broken:
            return
        self.broken = why
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(StoreFault(why))

    async def _sign_in(self) -> None:
        address = self.address
        if address.password:
            user = (address.username,) if address.username else ()
            await self.call("AUTH", *user, address.password)
        if address.database:
            await self.call("SELECT", address.database)
        self.run_id = info(await self.call("INFO", "server"))["run_id"]


def info(reply: bytes) -> dict[str, str]:
    """The fields of an INFO reply."""
    lines = (line.partition(":") for line in reply.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}
