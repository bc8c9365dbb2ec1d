"""Compressed bodies of servers that compress although they were asked not to (RFC 9110, 8.4.1)."""

import zlib
from collections.abc import Iterator

IDENTITY = b"identity"
CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate"})
MAX_PIECE = 64 * 2**10
"""Bytes that are decoded at once."""

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

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What it becomes, perhaps nothing yet, in pieces of `MAX_PIECE` bytes at most, all to be
        taken before the next is fed: a small body can become a thousand times as much. An empty
        piece is the end. Raises zlib.error, also where a body ends before it says so."""
        self.is_over = not piece
        if self.is_over and self._is_amid:
            raise zlib.error("the body ends in the middle")
        piece, self._head = self._head + piece, b""
        while piece:
            if self._inflating is None and len(piece) < 2:
                self._head = piece
                return
            self._inflating = self._inflating or self._begun(piece)
            yield from _inflated(self._inflating, piece)
            piece = self._rest()

    @property
    def _is_amid(self) -> bool:
        return bool(self._head) if self._inflating is None else not self._inflating.eof

    def _begun(self, piece: bytes) -> "zlib._Decompress":
        return zlib.decompressobj(_GZIP_BITS if self._is_gzip else _bits_of(piece))

    def _rest(self) -> bytes:
        """Further members follow a gzip file's first (RFC 1952, section 2.2)."""
        if self._inflating is None or not self._inflating.eof or not self._is_gzip:
            return b""
        rest, self._inflating = self._inflating.unused_data, None
        return rest


def _inflated(inflating: "zlib._Decompress", piece: bytes) -> Iterator[bytes]:
    while True:
        decoded = inflating.decompress(piece, MAX_PIECE)
        if decoded:
            yield decoded
        piece = inflating.unconsumed_tail
        # A full piece may have more behind it even where all of the input is consumed.
        if inflating.eof or not (piece or len(decoded) == MAX_PIECE):
            return


def _bits_of(head: bytes) -> int:
    """Some servers leave out the zlib format around `deflate` (RFC 1950, section 2.2)."""
    is_zlib = head[:1] and head[0] & 0x0F == 8 and int.from_bytes(head[:2]) % 31 == 0
    return zlib.MAX_WBITS if is_zlib else _RAW_BITS
