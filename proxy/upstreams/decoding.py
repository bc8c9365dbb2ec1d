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
        self._is_gzip = coding != b"deflate"
        self._inflating: zlib._Decompress | None = None
        self._head = b""
        self.is_over = False

    def feed(self, piece: bytes) -> bytes:
        """What it becomes, perhaps nothing yet. An empty piece is the end. Raises zlib.error, also
        where a body ends before it says so."""
        self.is_over = not piece
        if self.is_over and self._is_amid:
            raise zlib.error("the body ends in the middle")
        decoded = b""
        while piece:
            decoded += self._inflate(piece)
            piece = self._rest()
        return decoded

    @property
    def _is_amid(self) -> bool:
        return bool(self._head) if self._inflating is None else not self._inflating.eof

    def _inflate(self, piece: bytes) -> bytes:
        piece, self._head = self._head + piece, b""
        if self._inflating is None:
            if len(piece) < 2:
                self._head = piece
                return b""
            self._inflating = zlib.decompressobj(_GZIP_BITS if self._is_gzip else _bits_of(piece))
        return self._inflating.decompress(piece)

    def _rest(self) -> bytes:
        """Further members follow a gzip file's first (RFC 1952, section 2.2)."""
        if self._inflating is None or not self._inflating.eof or not self._is_gzip:
            return b""
        rest, self._inflating = self._inflating.unused_data, None
        return rest


def _bits_of(head: bytes) -> int:
    """Some servers leave out the zlib format around `deflate` (RFC 1950, section 2.2)."""
    is_zlib = head[:1] and head[0] & 0x0F == 8 and int.from_bytes(head[:2]) % 31 == 0
    return zlib.MAX_WBITS if is_zlib else _RAW_BITS
