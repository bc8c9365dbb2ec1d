"""The vocabulary that a GGUF file carries in its metadata, under `tokenizer.ggml.`."""

from typing import Any

from engine.errors import ModelUnusable
from engine.sources.gguf import GGUFFile
from engine.text.vocabulary.byte_level import begins_prompts, byte_level_library
from engine.text.vocabulary.sentence_pieces import (
    CONTROL,
    USER_DEFINED,
    SentencePieces,
    sentence_piece_vocabulary,
)
from engine.text.vocabulary.spelling import byte_alphabet, byte_level_bytes
from engine.text.vocabulary.vocabulary import Vocabulary, added, bare, with_turn_ends

_ENDS = ("eos", "eot", "eom")


def vocabulary_from_gguf(file: GGUFFile) -> Vocabulary:
    """Raises ModelUnusable for a kind of vocabulary that is not known."""
    match _of_tokenizer(file, "model"):
        case "gpt2":
            return _byte_level(file)
        case "llama":
            return _sentence_pieces(file)
        case kind:
            raise ModelUnusable(
                f"tokenizer {kind!r} is not supported; byte-level BPE (gpt2) and "
                "SentencePiece's BPE (llama) are"
            )


def _byte_level(file: GGUFFile) -> Vocabulary:
    pre = _of_tokenizer(file, "pre", "default")
    names = file.tokens
    kinds = _of_tokenizer(file, "token_type", [1] * len(names))
    inner = byte_level_library(names, _of_tokenizer(file, "merges", []), pre=pre)
    controls = frozenset(i for i, kind in enumerate(kinds) if kind == CONTROL)
    user_defined = frozenset(i for i, kind in enumerate(kinds) if kind == USER_DEFINED)
    tokens = [added(names[i], special=i in controls) for i in sorted(controls | user_defined)]
    alphabet = byte_alphabet()

    def piece(token_id: int, name: str) -> bytes:
        if token_id in controls:
            return b""
        return name.encode() if token_id in user_defined else byte_level_bytes(name, alphabet)

    return Vocabulary(
        outer=bare(inner, tokens),
        inner=inner,
        names=names,
        pieces=[piece(token_id, name) for token_id, name in enumerate(names)],
        controls=controls,
        end_ids=with_turn_ends(_declared_ends(file), names, controls),
        bos_id=_bos_id(file, default=begins_prompts(pre)),
    )


def _sentence_pieces(file: GGUFFile) -> Vocabulary:
    return sentence_piece_vocabulary(
        SentencePieces(
            pieces=file.tokens,
            scores=_of_tokenizer(file, "scores", []),
            kinds=_of_tokenizer(file, "token_type", []),
            space_in_front=_of_tokenizer(file, "add_space_prefix", True),
            bos_id=_bos_id(file, default=True),
            declared_ends=_declared_ends(file),
        )
    )


def _bos_id(file: GGUFFile, *, default: bool) -> int | None:
    wanted = _of_tokenizer(file, "add_bos_token", default)
    return _of_tokenizer(file, "bos_token_id") if wanted else None


def _declared_ends(file: GGUFFile) -> tuple[int | None, ...]:
    return tuple(_of_tokenizer(file, f"{name}_token_id") for name in _ENDS)


def _of_tokenizer(file: GGUFFile, key: str, default: Any = None) -> Any:
    return file.get(f"tokenizer.ggml.{key}", default)
