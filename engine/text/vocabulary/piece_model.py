"""Reads `tokenizer.model`, SentencePiece's file, without SentencePiece.

It is a protocol buffer (`sentencepiece_model.proto`): a message of numbered fields, each a varint,
8 or 4 bytes, or a run of bytes. Few fields matter; the others are passed over.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from engine.errors import ModelUnusable
from engine.text.vocabulary.sentence_pieces import NORMAL, SentencePieces

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _KIND = 1, 2, 3
_MODEL_TYPE, _BOS_ID, _EOS_ID = 3, 41, 42
_DUMMY_PREFIX = 3
_BPE = 2
_FLOAT = struct.Struct("<f")
Value = int | bytes


def read_piece_model(path: Path) -> SentencePieces:
    """Raises ModelUnusable for a file that is broken, or of another kind than BPE."""
    try:
        return _decoded(path.read_bytes())
    except (OSError, ValueError, IndexError, TypeError, KeyError, struct.error) as error:
        raise ModelUnusable(f"{path} is not a readable SentencePiece file: {error}") from error


def _decoded(data: bytes) -> SentencePieces:
    fields = list(_fields(data))
    trainer, normalizer = _message(fields, _TRAINER), _message(fields, _NORMALIZER)
    if trainer.get(_MODEL_TYPE, 1) != _BPE:
        raise ModelUnusable(
            "tokenizer.model is not of SentencePiece's BPE kind: put a tokenizer.json beside it"
        )
    pieces = [dict(_fields(_run(value))) for number, value in fields if number == _PIECES]
    return SentencePieces(
        pieces=[_run(piece[_TEXT]).decode() for piece in pieces],
        scores=[_FLOAT.unpack(_run(piece.get(_SCORE, bytes(4))))[0] for piece in pieces],
        kinds=[int(piece.get(_KIND, NORMAL)) for piece in pieces],
        space_in_front=bool(normalizer.get(_DUMMY_PREFIX, 1)),
        bos_id=_token_id(trainer.get(_BOS_ID, 1)),
        declared_ends=(_token_id(trainer.get(_EOS_ID, 2)),),
    )


def _message(fields: list[tuple[int, Value]], number: int) -> dict[int, Value]:
    """Empty where the field is missing; its defaults hold then."""
    return dict(_fields(_run(dict(fields).get(number, b""))))


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Numbers and values in order. Fixed-width values come as their bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(data, at)
            case 5:
                size = 4
            case kind:
                raise ValueError(f"a field of kind {kind} at byte {at}")
        if at + size > len(data):
            raise ValueError("it ends within a field")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the least significant first; and where the next value begins."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _run(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where text was expected")
    return value


def _token_id(value: Value) -> int | None:
    """-1, written as 64 bits of ones, is none."""
    number = int(value)
    return None if number >> 31 else number
