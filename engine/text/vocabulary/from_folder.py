"""The vocabulary of a Hugging Face folder: `tokenizer.json`, or else `tokenizer.model`."""

import json
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer as Library

from engine.errors import ModelUnusable
from engine.text.vocabulary.folder_facts import FolderFacts, read_facts
from engine.text.vocabulary.piece_model import read_piece_model
from engine.text.vocabulary.sentence_pieces import sentence_piece_vocabulary
from engine.text.vocabulary.spelling import (
    SPACE,
    byte_alphabet,
    byte_level_bytes,
    sentence_piece_bytes,
)
from engine.text.vocabulary.vocabulary import Vocabulary, with_turn_ends

_EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}


def vocabulary_from_folder(folder: Path) -> Vocabulary:
    """Raises ModelUnusable where there is neither file, or one that cannot be read."""
    whole, pieces = folder / "tokenizer.json", folder / "tokenizer.model"
    facts = read_facts(folder)
    if whole.is_file():
        return _from_json(whole, facts)
    if pieces.is_file():
        return _from_pieces(pieces, facts)
    raise ModelUnusable(f"{folder} has neither tokenizer.json nor tokenizer.model")


def _from_json(path: Path, facts: FolderFacts) -> Vocabulary:
    try:
        text = path.read_text(encoding="utf-8")
        source: dict[str, Any] = json.loads(text)
        library = Library.from_str(text)
    except Exception as error:  # tokenizers raises no narrower type
        raise ModelUnusable(f"{path} cannot be read: {error}") from error
    library.no_truncation()
    library.no_padding()
    added = library.get_added_tokens_decoder()
    controls = frozenset(token_id for token_id, token in added.items() if token.special)
    names = _names(library)
    return Vocabulary(
        outer=library,
        inner=_inner(library, source),
        names=names,
        pieces=_pieces(names, source, controls=controls, added=frozenset(added)),
        controls=controls,
        end_ids=with_turn_ends(
            (*facts.end_ids, *map(library.token_to_id, facts.eos_texts)), names, controls
        ),
        bos_id=_bos_id(library, facts),
    )


def _from_pieces(path: Path, facts: FolderFacts) -> Vocabulary:
    source = read_piece_model(path)
    ends = (*source.declared_ends, *facts.end_ids)
    bos_id = None if facts.add_bos_token is False else source.bos_id
    return sentence_piece_vocabulary(
        msgspec.structs.replace(source, bos_id=bos_id, declared_ends=ends)
    )


def _names(library: Library) -> list[str]:
    """Ids that nothing is spelled with, gaps before added tokens, have the name ""."""
    ids = library.get_vocab(with_added_tokens=True)
    names = [""] * (max(ids.values(), default=-1) + 1)
    for name, token_id in ids.items():
        names[token_id] = name
    return names


def _pieces(
    names: list[str], source: dict[str, Any], *, controls: frozenset[int], added: frozenset[int]
) -> list[bytes]:
    alphabet = byte_alphabet() if _is_byte_level(source) else None

    def piece(token_id: int, name: str) -> bytes:
        if token_id in controls:
            return b""
        if token_id in added:
            return name.encode()
        return sentence_piece_bytes(name) if alphabet is None else byte_level_bytes(name, alphabet)

    return [piece(token_id, name) for token_id, name in enumerate(names)]


def _is_byte_level(source: dict[str, Any]) -> bool:
    """Told from how the file says that tokens are decoded. Raises ModelUnusable for neither
    bytes nor SentencePiece's spaces, such as WordPiece."""
    decoder = source.get("decoder") or {}
    steps = decoder.get("decoders", [decoder])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return True
    if kinds & {"Metaspace", "ByteFallback"}:
        return False
    raise ModelUnusable(f"tokenizer.json decodes by {sorted(map(str, kinds))}: not supported")


def _inner(library: Library, source: dict[str, Any]) -> Library:
    """Splits text as the file says, but puts no space in front."""
    skeleton: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": _without_space(source.get("normalizer")),
        "pre_tokenizer": _without_space(source.get("pre_tokenizer")),
        "post_processor": None, "decoder": None, "model": _EMPTY_MODEL,
    }  # fmt: skip
    inner = Library.from_str(json.dumps(skeleton))
    inner.model = library.model
    return inner


def _without_space(step: dict[str, Any] | None) -> dict[str, Any] | None:
    if step is None:
        return None
    match step.get("type"):
        case "Prepend" if step.get("prepend") == SPACE:
            return None
        case "Metaspace":
            return step | {"prepend_scheme": "never"}
        case "Sequence":
            key = "normalizers" if "normalizers" in step else "pretokenizers"
            kept = (_without_space(inner) for inner in step[key])
            return step | {key: [inner for inner in kept if inner is not None]}
        case _:
            return step


def _bos_id(library: Library, facts: FolderFacts) -> int | None:
    """What the folder says outright; else what the file's own post-processor puts in front."""
    if facts.add_bos_token is not None:
        wanted = facts.add_bos_token and facts.bos_text
        return library.token_to_id(facts.bos_text) if wanted else None
    first = library.encode("a", add_special_tokens=True).ids[:1]
    plain = library.encode("a", add_special_tokens=False).ids[:1]
    return first[0] if first != plain else None
