"""SentencePiece's BPE out of pieces and scores, as `tokenizer.model` and GGUF files hold them.

SentencePiece joins the neighbours whose joint piece scores best, the left ones first. The same
comes out of BPE when every way to cut a piece in two is a merge, ranked by the piece's score:
that is how these vocabularies are commonly converted.
"""

from collections.abc import Iterator, Sequence

import msgspec
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers

from engine.errors import ModelUnusable
from engine.text.vocabulary.spelling import SPACE, sentence_piece_bytes
from engine.text.vocabulary.vocabulary import Vocabulary, added, with_turn_ends

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
"""Kinds of pieces; GGUF numbers them as SentencePiece does."""


class SentencePieces(msgspec.Struct, frozen=True, kw_only=True):
    """`pieces`, `scores` and `kinds` are in id order. `declared_ends` may hold None."""

    pieces: Sequence[str]
    scores: Sequence[float]
    kinds: Sequence[int]
    space_in_front: bool
    """A text, and what follows a special token, is read as if a space stood in front."""
    bos_id: int | None
    """None where prompts have no beginning token."""
    declared_ends: tuple[int | None, ...]


def sentence_piece_vocabulary(source: SentencePieces) -> Vocabulary:
    """Raises ModelUnusable for lists of different lengths."""
    if not len(source.pieces) == len(source.scores) == len(source.kinds):
        raise ModelUnusable("the vocabulary is broken: a piece lacks its score or its kind")
    hidden = (CONTROL, UNKNOWN)
    controls = frozenset(i for i, kind in enumerate(source.kinds) if kind in hidden)
    inner = _library(source, space_in_front=False)
    library = Library(inner.model)
    library.normalizer = _normalizer(space_in_front=source.space_in_front)
    library.add_tokens([
        added(piece, special=kind != USER_DEFINED)
        for piece, kind in zip(source.pieces, source.kinds, strict=True)
        if kind in (*hidden, USER_DEFINED)
    ])  # fmt: skip
    return Vocabulary(
        outer=library,
        inner=inner,
        names=source.pieces,
        pieces=[
            b"" if token_id in controls else sentence_piece_bytes(piece)
            for token_id, piece in enumerate(source.pieces)
        ],
        controls=controls,
        end_ids=with_turn_ends(source.declared_ends, source.pieces, controls),
        bos_id=source.bos_id,
    )


def _library(source: SentencePieces, *, space_in_front: bool) -> Library:
    ids = {piece: token_id for token_id, piece in enumerate(source.pieces)}
    unknown = next((p for p, kind in zip(source.pieces, source.kinds, strict=True)
                    if kind == UNKNOWN), None)  # fmt: skip
    model = models.BPE(
        vocab=ids, merges=_merges(source, ids), byte_fallback=True, fuse_unk=True, unk_token=unknown
    )
    library = Library(model)
    library.normalizer = _normalizer(space_in_front=space_in_front)
    return library


def _normalizer(*, space_in_front: bool) -> normalizers.Normalizer:
    spaces = normalizers.Replace(" ", SPACE)
    return normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if space_in_front else spaces


def _merges(source: SentencePieces, ids: dict[str, int]) -> list[tuple[str, str]]:
    """Best first. Of two cuts of equal score the one whose halves come first in the vocabulary
    wins, as in the conversions that models are published with. Control tokens never come out."""
    pairs = [
        (-score, ids[left], ids[right], left, right)
        for piece, score, kind in zip(source.pieces, source.scores, source.kinds, strict=True)
        if kind == NORMAL
        for left, right in _halves(piece, ids)
    ]
    return [(left, right) for *_, left, right in sorted(pairs)]


def _halves(piece: str, ids: dict[str, int]) -> Iterator[tuple[str, str]]:
    for at in range(1, len(piece)):
        left, right = piece[:at], piece[at:]
        if left in ids and right in ids:
            yield left, right
