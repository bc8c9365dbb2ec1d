"""Compressed bodies of servers."""

import gzip
import zlib

import pytest

from proxy.upstreams.decoding import MAX_PIECE, Decoder

WORDS = b"What nobody asked to be compressed. " * 100
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        (b"gzip", gzip.compress(WORDS, mtime=0)),
        (b"gzip", gzip.compress(WORDS[:900], mtime=0) + gzip.compress(WORDS[900:], mtime=0)),
        (b"deflate", zlib.compress(WORDS)),
        (b"deflate", RAW.compress(WORDS) + RAW.flush()),
    ],
    ids=["gzip", "gzip in two members", "deflate", "deflate without its format"],
)
@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_a_body_is_decoded_whatever_its_pieces(coding, packed, size):
    decoder = Decoder(coding)
    pieces = [packed[at : at + size] for at in range(0, len(packed), size)]
    assert b"".join(b"".join(decoder.feed(piece)) for piece in (*pieces, b"")) == WORDS
    assert decoder.is_over


def test_what_is_not_compressed_at_all_is_a_fault():
    decoder = Decoder(b"gzip")
    with pytest.raises(zlib.error):
        list(decoder.feed(WORDS))


def test_an_empty_body_is_not_compressed():
    assert list(Decoder(b"gzip").feed(b"")) == []


@pytest.mark.parametrize("size", [1, 20, -1])
@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_a_body_that_ends_in_the_middle_is_a_fault(coding, size):
    packed = gzip.compress(WORDS, mtime=0) if coding == b"gzip" else zlib.compress(WORDS)
    decoder = Decoder(coding)
    list(decoder.feed(packed[:size]))
    with pytest.raises(zlib.error):
        list(decoder.feed(b""))


@pytest.mark.parametrize("more", [-1, 0, 1, 100 * MAX_PIECE])
@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_a_small_body_that_becomes_a_large_one_comes_in_pieces(coding, more):
    words = bytes(MAX_PIECE + more)
    packed = gzip.compress(words, mtime=0) if coding == b"gzip" else zlib.compress(words)
    decoder = Decoder(coding)
    pieces = [*decoder.feed(packed), *decoder.feed(b"")]
    assert max(map(len, pieces)) <= MAX_PIECE
    assert b"".join(pieces) == words
