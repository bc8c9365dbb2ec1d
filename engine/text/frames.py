"""Frames over the pipes to a process that renders: a length, 4 bytes little endian, and a body.
That process waits as long as it takes; who asks has a deadline, in `time.monotonic`'s seconds."""

import os
import select
import struct
import time
from typing import IO

_LENGTH = struct.Struct("<I")
_PIECE_BYTES = 1 << 20


class FrameTooLarge(Exception):  # a state of the sender's, not an error of ours
    """There is no memory for a frame; the next one can be read."""


def write_frame(sink: IO[bytes], body: bytes) -> None:
    """Raises OSError where nobody reads any more."""
    sink.write(_LENGTH.pack(len(body)))
    sink.write(body)
    sink.flush()


def read_frame(source: IO[bytes]) -> bytes | None:
    """None at the end, also at one in the middle of a frame. Raises FrameTooLarge."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    try:
        body = source.read(length)
    except MemoryError as error:  # room is made before anything is read
        while length and (piece := source.read(min(length, _PIECE_BYTES))):
            length -= len(piece)
        raise FrameTooLarge from error
    return body if len(body) == length else None


def send_frame(sink: int, body: bytes, *, deadline_s: float) -> None:
    """To a descriptor that does not block. Raises TimeoutError, OSError where nobody reads."""
    rest = memoryview(_LENGTH.pack(len(body)) + body)
    while rest:
        _await(sink, select.POLLOUT, deadline_s=deadline_s)
        rest = rest[os.write(sink, rest) :]


def receive_frame(source: int, *, deadline_s: float) -> bytes | None:
    """As `read_frame`, from a descriptor. Raises TimeoutError."""
    head = _received(source, _LENGTH.size, deadline_s=deadline_s)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = _received(source, length, deadline_s=deadline_s)
    return body if len(body) == length else None


def _received(source: int, length: int, *, deadline_s: float) -> bytes:
    """Fewer at the end."""
    pieces: list[bytes] = []
    while length:
        _await(source, select.POLLIN, deadline_s=deadline_s)
        piece = os.read(source, min(length, _PIECE_BYTES))
        if not piece:
            break
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _await(descriptor: int, event: int, *, deadline_s: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    left_ms = max(0.0, deadline_s - time.monotonic()) * 1000
    if not poll.poll(left_ms):
        raise TimeoutError
