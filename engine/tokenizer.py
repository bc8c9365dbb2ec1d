"""Byte-level BPE from a GGUF file's own vocabulary.

The pre-tokenizer follows the file's `tokenizer.ggml.pre`; a generic one splits digits and blank
lines otherwise than the model was trained on.
"""

import codecs
import re
from collections.abc import Callable, Sequence

from tokenizers import Tokenizer as BPETokenizer
from tokenizers import models, pre_tokenizers

from engine.errors import ModelUnusable
from engine.gguf import GGUFFile

_CONTROL = 3  # GGUF token types
_USER_DEFINED = 4


class Tokenizer:
    """Text to ids and ids to bytes. Safe to use from several threads."""

    def __init__(
        self,
        *,
        tokens: Sequence[str],
        merges: Sequence[str],
        special_ids: Sequence[int],
        end_ids: frozenset[int],
        bos_id: int | None,
        pre_tokenizer: str,
    ) -> None:
        """`bos_id` is what a plain prompt begins with, None where the model wants none."""
        self._bpe = _byte_level_bpe(tokens, merges, pre_tokenizer)
        self._specials = {tokens[token_id]: token_id for token_id in special_ids}
        self._special_pattern = _any_of(self._specials)
        self._bytes = _bytes_of_tokens(tokens, frozenset(special_ids))
        self._names = tokens
        self._bos_id = bos_id
        self.end_ids = end_ids
        """Tokens that end an answer."""

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    @property
    def special_texts(self) -> tuple[str, ...]:
        """What special tokens look like in text."""
        return tuple(self._specials)

    def name(self, token_id: int) -> str:
        """How the vocabulary spells a token; special tokens as they stand in templates."""
        return self._names[token_id]

    def encode(self, text: str, *, literal: Callable[[str], str] | None = None) -> list[int]:
        """Ids of a text in which special tokens are parsed. Puts the model's beginning token in
        front, once. `literal` is applied to the pieces between special tokens (see
        `engine.chat`): what it puts in is plain text, never a special token."""
        ids: list[int] = []
        for position, piece in enumerate(self._special_pattern.split(text)):
            if position % 2:
                ids.append(self._specials[piece])
            elif piece:
                plain = literal(piece) if literal else piece
                ids += self._bpe.encode(plain, add_special_tokens=False).ids
        if self._bos_id is not None and ids[:1] != [self._bos_id]:
            ids.insert(0, self._bos_id)
        return ids

    def encode_plain(self, text: str) -> list[int]:
        """Ids of a text in which nothing is special, and with no token in front."""
        return list(self._bpe.encode(text, add_special_tokens=False).ids)

    def bytes_of(self, token_id: int) -> bytes:
        """What a token adds to the answer's UTF-8; special tokens add nothing."""
        return self._bytes[token_id]

    def detokeniser(self) -> "Detokeniser":
        """For one answer."""
        return Detokeniser(self)


class Detokeniser:
    """Ids to text, one answer, as they come. A character is held back until it is whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that became whole with this token, often empty within a character."""
        return self._decoder.decode(self._tokenizer.bytes_of(token_id))

    def close(self) -> str:
        """What is left: U+FFFD where the answer ends inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)


def tokenizer_from_gguf(file: GGUFFile) -> Tokenizer:
    """Raises ModelUnusable for a vocabulary that is not byte-level BPE."""
    kind = file.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelUnusable(f"tokenizer {kind!r} is not supported; byte-level BPE is")
    types = file.get("tokenizer.ggml.token_type", [])
    bos_id = file.get("tokenizer.ggml.bos_token_id")
    ends = (file.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return Tokenizer(
        tokens=file.tokens,
        merges=file.get("tokenizer.ggml.merges", []),
        special_ids=[i for i, kind in enumerate(types) if kind in (_CONTROL, _USER_DEFINED)],
        end_ids=frozenset(int(token_id) for token_id in ends if token_id is not None),
        bos_id=bos_id if file.get("tokenizer.ggml.add_bos_token", False) else None,
        pre_tokenizer=file.get("tokenizer.ggml.pre", "default"),
    )


def _byte_level_bpe(tokens: Sequence[str], merges: Sequence[str], pre: str) -> BPETokenizer:
    """No token is special here: the caller has cut the text at special tokens."""
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    bpe = BPETokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    match pre:
        case "gpt-2":
            bpe.pre_tokenizer = byte_level
        case "smollm":
            digits = pre_tokenizers.Digits(individual_digits=True)
            bpe.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
        case _:
            raise ModelUnusable(f"pre-tokenizer {pre!r} is not supported; smollm and gpt-2 are")
    return bpe


def _any_of(texts: dict[str, int]) -> re.Pattern[str]:
    """Matches the longest of `texts`; nothing when there are none. One group, so that
    `split` gives plain and special pieces in turn."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")" if texts else r"((?!))")


def _bytes_of_tokens(tokens: Sequence[str], special_ids: frozenset[int]) -> list[bytes]:
    to_byte = _byte_alphabet()
    return [
        b"" if token_id in special_ids else bytes(to_byte[char] for char in token)
        for token_id, token in enumerate(tokens)
    ]


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others are numbered
    from U+0100 on (Radford et al., 2019, `encoder.py`)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + rank): byte for rank, byte in enumerate(others)
    }
