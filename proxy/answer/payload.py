"""A recorded answer as it is stored: opaque to the index, checked again when it is read."""

import zlib

import msgspec

from proxy.call import Headers, Surface, Usage

FORMAT_VERSION = 1
"""First byte of the stored form. Another version is ignored, never misread."""

_CHECKSUM_BYTES = 4


class Payload(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One whole answer, in the form in which it came: `body`, or `frames`."""

    surface: Surface
    headers: Headers
    """The few response headers that are worth replaying; `content-type` is not among them."""
    body: bytes = b""
    """The JSON of a plain answer, byte for byte. Empty when a stream was recorded."""
    frames: bytes = b""
    """The frames of a stream, joined, each as a client sees it that did not ask for usage: without
    the usage chunk, `"usage": null` and `[DONE]`. Empty when a plain answer was recorded."""
    usage_frame: bytes = b""
    """The usage chunk of a stream. Empty when the upstream sent none."""
    usage: Usage
    usage_known: bool
    """The upstream counted; zeros of `usage` are its own."""
    model: str
    """As the upstream named it."""
    has_tool_calls: bool
    varied: Headers = ()
    """Request headers that the upstream's `Vary` names, with digests (`proxy.answer.control`)."""

    @property
    def streamed(self) -> bool:
        """Recorded from a stream, so its chunk boundaries are kept."""
        return not self.body


def encode(payload: Payload) -> bytes:
    """Version, checksum, then the record."""
    record = _ENCODER.encode(payload)
    return bytes((FORMAT_VERSION,)) + _checksum(record) + record


def decode(stored: bytes) -> Payload | None:
    """None when it is of another version, damaged, or not a whole answer."""
    head = 1 + _CHECKSUM_BYTES
    if stored[:1] != bytes((FORMAT_VERSION,)):
        return None
    record = memoryview(stored)[head:]
    if _checksum(record) != stored[1:head]:
        return None
    try:
        payload = _DECODER.decode(record)
    except msgspec.MsgspecError:
        return None
    return payload if _whole(payload) else None


def _whole(payload: Payload) -> bool:
    if payload.body:
        return not payload.frames
    return payload.frames.endswith(b"\n\n") and payload.surface is not Surface.EMBEDDINGS


def _checksum(record: bytes | memoryview) -> bytes:
    return zlib.crc32(record).to_bytes(_CHECKSUM_BYTES, "big")


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Payload)
