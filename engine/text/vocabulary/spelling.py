"""The bytes that a token's spelling in a vocabulary stands for."""

import re

SPACE = "▁"
"""SentencePiece's."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's: printable Latin-1 bytes stand for themselves, the others are numbered from U+0100
    on (Radford et al., 2019, `encoder.py`)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + rank): byte for rank, byte in enumerate(others)
    }


def byte_level_bytes(name: str, alphabet: dict[str, int]) -> bytes:
    """Of a spelling in the byte alphabet; of any other, which a vocabulary may have for unused
    tokens, its UTF-8."""
    try:
        return bytes(alphabet[char] for char in name)
    except KeyError:
        return name.encode()


def sentence_piece_bytes(name: str) -> bytes:
    """`▁` is a space, `<0x0A>` is a byte."""
    byte = _BYTE.fullmatch(name)
    return bytes([int(byte[1], 16)]) if byte else name.replace(SPACE, " ").encode()
