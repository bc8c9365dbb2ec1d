"""The stored form of an entry: a version byte, a checksum, then the entry in msgpack.

SQLite and Redis keep no checksum of what they hold; a record that was damaged at rest is recognised
here and counts as absent.
"""

import zlib

import msgspec

from index.entry import FORMAT_VERSION, Entry

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)
_HEAD_BYTES = 5


def encode(entry: Entry) -> bytes:
    """Bytes that `decode` reads back."""
    body = _ENCODER.encode(entry)
    return bytes((FORMAT_VERSION,)) + zlib.crc32(body).to_bytes(4, "big") + body


def decode(record: bytes) -> Entry | None:
    """The entry; None when it is of another version, or damaged."""
    if len(record) < _HEAD_BYTES or record[0] != FORMAT_VERSION:
        return None
    body = memoryview(record)[_HEAD_BYTES:]
    if zlib.crc32(body) != int.from_bytes(record[1:_HEAD_BYTES], "big"):
        return None
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError):
        return None
