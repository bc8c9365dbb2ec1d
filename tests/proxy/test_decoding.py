"""Compressed bodies of servers."""

import gzip
import zlib

import pytest

from proxy.upstreams.decoding import Decoder

WORDS = b"What nobody asked to be compressed. " * 100
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        (b"gzip", gzip.compress(WORDS, mtime=0)),
        (b"deflate", zlib.compress(WORDS)),
        (b"deflate", RAW.compress(WORDS) + RAW.flush()),
    ],
    ids=["gzip", "deflate", "deflate without its format"],
)
@pytest.mark.parametrize("size", [1, 10, 10_000])
def test_a_body_is_decoded_whatever_its_pieces(coding, packed, size):
    decoder = Decoder(coding)
    pieces = [decoder.feed(packed[at : at + size]) for at in range(0, len(packed), size)]
    assert b"".join(pieces) + decoder.feed(b"") == WORDS
    assert decoder.is_over


def test_what_is_not_compressed_at_all_is_a_fault():
    decoder = Decoder(b"gzip")
    with pytest.raises(zlib.error):
        decoder.feed(WORDS)
