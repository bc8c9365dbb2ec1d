"""One upstream answer on its way, and those who listen to it.

What a stream costs in memory is bounded. While it is recorded for the cache, the flight keeps all
of it (the recording needs it anyway), so late listeners may join and slow ones hold up nobody. Once
it is not recorded (too large, not to be stored), only what someone still has to read is kept: the
upstream is read no faster than the fastest listener takes it, and one that falls far behind the
others is let go.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from index.entry import Snapshot
from proxy.answer.control import fits
from proxy.answer.grammar import Frame
from proxy.answer.payload import Payload
from proxy.call import Call, Headers, Usage
from proxy.embeddings.part import Part
from proxy.errors import ClientLeft, UpstreamBroken, UpstreamError
from proxy.misses.tape import Tape

WINDOW_BYTES = 256 * 2**10
"""How far the upstream may be ahead of the fastest listener, once nothing is recorded."""
MAX_LAG_BYTES = 16 * 2**20
"""How far a listener may be behind the fastest one, once nothing is recorded."""
_PIECE_BYTES = 64 * 2**10
"""What a listener takes at a time, so that a slow client has no more than this on its way."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when the upstream's answer begins."""

    status: int
    headers: Headers
    """As the upstream sent them, but for the connection's own."""
    streaming: bool
    """Server-sent events."""
    upstream: str
    varied: Headers | None
    """As `proxy.answer.control.varied_by`."""
    asker: str = ""
    """Whose credential it was asked for with (`Caller.credential_id`); empty when it was nobody's
    but ours."""
    in_pieces: bool = False
    """A plain body that comes through frames, too large to be held (`proxy.port.large`)."""

    def suits(self, call: Call) -> bool:
        """The answer may also be given to this request. A refusal of somebody's credential may not:
        it can be about the key, what it may see, or what is left of its quota."""
        if self.varied is None or not fits(self.varied, call.headers):
            return False
        is_own = self.asker in ("", call.caller.credential_id)
        return is_own or not 400 <= self.status < 500


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a flight ended. At most one of `body` and frames was delivered."""

    body: bytes | None = None
    """The whole answer, when it was not a stream."""
    payload: Payload | None = None
    """The recorded answer, when it was complete."""
    usage: Usage = Usage()
    """As the upstream counted it; zeros where it did not."""
    parts: Mapping[str, Part] = {}
    """Of embeddings: what was made, by the key of its input."""
    error: UpstreamError | None = None
    stored: bool = False
    not_kept: str = ""
    """Why it is not stored, in words, where the request would have allowed it."""


class Flight:
    """The buffer between one upstream answer and its listeners.

    Filled by one task through `begin`, `append` and `end`; read through `listen`.
    """

    def __init__(
        self, keys: Sequence[str], *, snapshot: Snapshot, tags: frozenset[str], keeps_all: bool
    ) -> None:
        """`keys`: one, or those of all inputs of a batch; at least one."""
        self.keys = tuple(keys)
        self.snapshot = snapshot
        self.tags = tags
        self.keeps_all = keeps_all
        """A late listener still finds the beginning."""
        self.head: Head | None = None
        self.tape = Tape()
        self.ending: Ending | None = None
        self.task: asyncio.Task[None] | None = None
        self.finish_alone = False
        """Go on without listeners (policy `on_disconnect: finish`, background refresh)."""
        self.made_elsewhere = False
        """Another replica made the answer; the upstream was not asked from here."""
        self.doomed = False
        """Cancelled because nobody listens any more; no longer to be joined."""
        self.listeners: set[Listener] = set()
        self._read = asyncio.Event()

    def listen(self) -> "Listener":
        """A new listener. It must be closed (`leave`), or the flight never ends early."""
        listener = Listener(self)
        self.listeners.add(listener)
        return listener

    def begin(self, head: Head) -> None:
        """The upstream's status and headers are known."""
        assert self.head is None
        self.head = head
        self._wake()

    def append(self, frames: Sequence[Frame]) -> None:
        """More of the stream has come."""
        self.tape.append(frames)
        self._wake()

    def forget_beginning(self) -> None:
        """Nothing is recorded any more: keep only what the listeners have not read. There is
        nothing left to go on alone for."""
        self.keeps_all = False
        self.finish_alone = False
        self._trim()
        self._stop_unheard()

    async def room(self) -> None:
        """Wait, once nothing is recorded, until the fastest listener has nearly caught up."""
        while not self.keeps_all:
            self._trim()
            lags = [one.lag_bytes for one in self.listeners]
            if not lags or min(lags) <= WINDOW_BYTES:
                return
            self._read.clear()
            await self._read.wait()

    def end(self, ending: Ending) -> None:
        """No more will come. A no-op after the first time."""
        if self.ending is None:
            self.ending = ending
            self._wake()

    def noticed(self) -> None:
        """A listener has read on."""
        if not self.keeps_all:
            self._read.set()

    def forget(self, listener: "Listener") -> None:
        """A listener left. The last one ends the upstream request, unless it may go on alone."""
        self.listeners.discard(listener)
        self._read.set()
        self._stop_unheard()

    def _stop_unheard(self) -> None:
        if self.listeners or self.finish_alone or self.ending is not None:
            return
        self.doomed = True
        if self.task is not None:
            self.task.cancel()

    def _trim(self) -> None:
        lags = [one.lag_bytes for one in self.listeners]
        if lags and max(lags) - min(lags) > MAX_LAG_BYTES:
            allowed = min(lags) + MAX_LAG_BYTES
            for one in [one for one in self.listeners if one.lag_bytes > allowed]:
                one.let_go()
        self.tape.drop_before(min((one.position for one in self.listeners), default=self.tape.end))

    def _wake(self) -> None:
        for listener in self.listeners:
            listener.wake()


class Listener:
    """One client's view of a flight."""

    def __init__(self, flight: Flight) -> None:
        self.position = 0
        """Number of the frame that is read next."""
        self._flight = flight
        self._news: asyncio.Future[None] | None = None
        """Waited for; None while nobody waits."""
        self._left = False
        self._too_slow = False
        self._read_bytes = 0
        self._waiting_since_s: float | None = None
        self._silence: asyncio.TimerHandle | None = None

    @property
    def lag_bytes(self) -> int:
        """What has come and was not read yet."""
        return self._flight.tape.end_bytes - self._read_bytes

    def wake(self) -> None:
        """Something of the flight changed."""
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def leave(self) -> None:
        """The client is gone, or has its answer. Idempotent; a waiting method raises ClientLeft."""
        if not self._left:
            self._left = True
            self.wake()
            if self._silence is not None:
                self._silence.cancel()
            self._flight.forget(self)

    def let_go(self) -> None:
        """Too far behind: what it has not read is dropped, and its stream breaks off."""
        self._too_slow = True
        self.leave()

    async def head(self) -> Head:
        """Wait for status and headers. Raises UpstreamError when none came."""
        flight = self._flight
        while flight.head is None:
            if flight.ending is not None:
                raise _error_of(flight.ending)
            await self._wait()
        return flight.head

    async def ending(self) -> Ending:
        """Wait for the end. Raises the flight's UpstreamError."""
        while self._flight.ending is None:
            # What a stream brings meanwhile is of no use to who waits for all of it.
            self.position, self._read_bytes = self._flight.tape.end, self._flight.tape.end_bytes
            self._flight.noticed()
            await self._wait()
        if self._flight.ending.error is not None:
            raise self._flight.ending.error
        return self._flight.ending

    async def frames(self, *, silence_s: float | None) -> AsyncIterator[Sequence[Frame]]:
        """The stream from its beginning, in small pieces; an empty piece after every silence of
        `silence_s` to one and a half times that. Raises UpstreamError where it breaks off."""
        flight = self._flight
        if silence_s is not None:
            self._watch(silence_s)
        while True:
            if self._left:
                raise self._gone()
            if self.position < flight.tape.end:
                news = flight.tape.read(self.position, max_bytes=_PIECE_BYTES)
                self.position += len(news)
                self._read_bytes = flight.tape.bytes_before(self.position)
                flight.noticed()
                yield news
            elif flight.ending is not None:
                if flight.ending.error is not None:
                    raise flight.ending.error
                return
            elif not await self._wait():
                yield ()

    async def _wait(self) -> bool:
        """Wait for news. False: there are none, but the silence has become long."""
        if not self._left:
            loop = asyncio.get_running_loop()
            self._waiting_since_s = loop.time()
            self._news = loop.create_future()
            try:
                await self._news
            finally:
                self._news = None
        if self._left:
            raise self._gone()
        is_news = self._waiting_since_s is not None
        self._waiting_since_s = None
        return is_news

    def _watch(self, silence_s: float) -> None:
        """One timer a stream that looks now and then, not one a frame."""
        loop = asyncio.get_running_loop()
        since_s = self._waiting_since_s
        is_waiting = self._news is not None and not self._news.done()
        if since_s is not None and is_waiting and loop.time() - since_s >= silence_s:
            self._waiting_since_s = None
            self.wake()
        self._silence = loop.call_later(silence_s / 2, self._watch, silence_s)

    def _gone(self) -> ClientLeft | UpstreamBroken:
        if self._too_slow:
            return UpstreamBroken("the answer was read too slowly to be kept for it", upstream="")
        return ClientLeft()


def _error_of(ending: Ending) -> UpstreamError:
    return ending.error or UpstreamBroken("the answer ended before it began", upstream="")
