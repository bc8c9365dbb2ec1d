"""Compressed bodies of servers that compress although they were asked not to (RFC 9110, 8.4.1)."""

import zlib

IDENTITY = b"identity"
CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})

_GZIP_BITS = zlib.MAX_WBITS | 16
_RAW_BITS = -zlib.MAX_WBITS


class Decoder:
    """Decodes one body, piece by piece."""

    def __init__(self, coding: bytes) -> None:
        """`coding`: one of `CODINGS`."""
        self._inflating = None if coding == b"deflate" else zlib.decompressobj(_GZIP_BITS)
        self._head = b""
        self.is_over = False

    def feed(self, piece: bytes) -> bytes:
        """What it becomes, perhaps nothing yet. An empty piece is the end. Raises zlib.error."""
        self.is_over = not piece
        if self._inflating is None:
            piece = self._head = self._head + piece
            if len(piece) < 2 and not self.is_over:
                return b""
            self._inflating = zlib.decompressobj(_bits_of(piece))
        return self._inflating.decompress(piece) + (
            self._inflating.flush() if self.is_over else b""
        )


def _bits_of(head: bytes) -> int:
    """Some servers leave out the zlib format around `deflate` (RFC 1950, section 2.2)."""
    is_zlib = head[:1] and head[0] & 0x0F == 8 and int.from_bytes(head[:2]) % 31 == 0
    return zlib.MAX_WBITS if is_zlib else _RAW_BITS
