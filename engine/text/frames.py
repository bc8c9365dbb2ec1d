"""Frames over the pipes to a process that renders: a length, 4 bytes little endian, and a body."""

import struct
from typing import IO

_LENGTH = struct.Struct("<I")


def write_frame(sink: IO[bytes], body: bytes) -> None:
    """Raises OSError where nobody reads any more."""
    sink.write(_LENGTH.pack(len(body)))
    sink.write(body)
    sink.flush()


def read_frame(source: IO[bytes]) -> bytes | None:
    """None at the end, also at one in the middle of a frame."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = source.read(length)
    return body if len(body) == length else None
