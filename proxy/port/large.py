"""Plain answers that are too large to be held whole: passed on as they come, and not kept.

Who had joined before that was known goes on listening; nobody joins afterwards.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec

from proxy.answer.grammar import Discarded, Frame, FrameKind
from proxy.misses.flight import Ending, Flight, Head, Listener
from proxy.upstreams.opening import MAX_WHOLE_BYTES

TOO_LARGE = Discarded(reason="too large to be held")
"""What becomes of them. What they cost is not read: the guess stands."""


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of a body before the decision; `is_whole`: all of it."""

    pieces: deque[bytes]
    is_whole: bool


async def read(body: AsyncIterator[bytes], *, max_entry_bytes: int) -> Beginning:
    """The body, or as much of it as is held: what may be kept, at least what has been held on its
    way here. Raises UpstreamError."""
    max_bytes = max(max_entry_bytes, MAX_WHOLE_BYTES)
    pieces: deque[bytes] = deque()
    num_bytes = 0
    async for piece in body:
        pieces.append(piece)
        num_bytes += len(piece)
        if num_bytes > max_bytes:
            return Beginning(pieces=pieces, is_whole=False)
    return Beginning(pieces=pieces, is_whole=True)


async def pour(
    flight: Flight, head: Head, beginning: Beginning, body: AsyncIterator[bytes]
) -> None:
    """Fill a flight to its end, no faster than it is read. Raises UpstreamError."""
    flight.begin(msgspec.structs.replace(head, in_pieces=True))
    flight.forget_beginning()
    while beginning.pieces:
        await _append(flight, beginning.pieces.popleft())
    async for piece in body:
        await _append(flight, piece)
    flight.end(Ending(not_kept=TOO_LARGE.reason))


async def pieces_for(listener: Listener) -> AsyncGenerator[bytes, None]:
    """The body for one client, whose listener leaves at its end. Raises UpstreamError where it
    breaks off."""
    try:
        async for frames in listener.frames(silence_s=None):
            yield b"".join([frame.data for frame in frames])
    finally:
        listener.leave()


async def _append(flight: Flight, piece: bytes) -> None:
    flight.append([Frame(kind=FrameKind.CONTENT, data=piece, bare=piece)])
    await flight.room()
