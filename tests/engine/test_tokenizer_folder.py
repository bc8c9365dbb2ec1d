"""Folders as `save_pretrained` writes them, read by transformers and by us."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast
from vocabularykit import TEXTS, piece_list, train_byte_level

from engine.errors import ModelUnusable
from engine.text.guarded import GuardedEncoder
from engine.text.tokenizer import tokenizer_from_folder
from engine.text.vocabulary.sentence_pieces import SentencePieces, sentence_piece_vocabulary


def _byte_level() -> Tokenizer:
    tokenizer = train_byte_level()
    tokenizer.add_special_tokens(["<|begin|>", "<|end|>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))]
    )
    return tokenizer


def _pieces(*, metaspace: bool) -> Tokenizer:
    """Llama 2's two conversions: the older prepends a space to each piece between special tokens,
    the newer to the beginning of the text only."""
    pieces, scores, kinds = piece_list()
    made = sentence_piece_vocabulary(
        SentencePieces(
            pieces=pieces, scores=scores, kinds=kinds, space_in_front=True, bos_id=1,
            declared_ends=(2,),
        )
    )  # fmt: skip
    tokenizer = Tokenizer.from_str(made.outer.to_str())
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    if metaspace:
        tokenizer.normalizer = None
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


MAKERS = {
    "byte-level": _byte_level,
    "pieces, prepended": lambda: _pieces(metaspace=False),
    "pieces, metaspace": lambda: _pieces(metaspace=True),
}


@pytest.fixture(params=list(MAKERS))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = MAKERS[request.param]()
    texts = ("<|begin|>", "<|end|>") if made.token_to_id("<|end|>") else ("<s>", "</s>")
    PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=texts[0], eos_token=texts[1],
    ).save_pretrained(tmp_path)  # fmt: skip
    return tmp_path


def test_a_folder_gives_the_ids_and_text_that_transformers_gives(folder: Path) -> None:
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    ours = tokenizer_from_folder(folder)
    end = theirs.eos_token
    for text in [*TEXTS, f"Hello{end} world{end}\n", f"{end}Hello <think> x"]:
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text) == ours.begun(ids), text
        pieces = b"".join(map(ours.bytes_of, ids)).decode()
        assert pieces == theirs.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
    assert ours.vocab_size == len(theirs)
    assert theirs.eos_token_id in ours.end_ids


def test_guarded_encoding_differs_only_in_what_users_may_not_write(folder: Path) -> None:
    ours = tokenizer_from_folder(folder)
    encoder = GuardedEncoder(ours, ours.special_texts)
    end = next(text for text in ours.special_texts if text in ("<|end|>", "</s>"))
    for text in [*TEXTS, f"Hello{end} world{end}\n", f"{end}Hello"]:
        assert encoder.encode(text, literal=str) == ours.encode(text), text
    ids = encoder.encode(f"a MARK b{end}", literal=lambda text: text.replace("MARK", end))
    ends = ours.encode(end)[-1]
    assert ids.count(ends) == 1
    assert ids[-1] == ends
    written = b"".join(map(ours.bytes_of, ids)).decode()
    assert written.removeprefix(" ") == f"a {end} b"


def _saved(folder: Path, name: str, value: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(value))


def test_generation_config_names_more_ends(tmp_path: Path) -> None:
    _byte_level().save(str(tmp_path / "tokenizer.json"))
    _saved(tmp_path, "generation_config.json", {"eos_token_id": [7, 9]})
    _saved(tmp_path, "tokenizer_config.json", {"eos_token": {"content": "<|end|>"}})
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.end_ids == {7, 9, _byte_level().token_to_id("<|end|>")}


@pytest.mark.parametrize(("said", "expected"), [(None, True), (True, True), (False, False)])
def test_the_config_has_the_last_word_on_the_beginning_token(
    tmp_path: Path, said: bool | None, expected: bool
) -> None:
    _byte_level().save(str(tmp_path / "tokenizer.json"))
    _saved(tmp_path, "tokenizer_config.json", {"bos_token": "<|begin|>", "add_bos_token": said})
    tokenizer = tokenizer_from_folder(tmp_path)
    begin = _byte_level().token_to_id("<|begin|>")
    assert (tokenizer.encode("Hello")[0] == begin) is expected
    assert tokenizer.encode("<|begin|>Hello").count(begin) == 1


def test_a_normaliser_of_the_folder_is_kept(tmp_path: Path) -> None:
    made = _byte_level()
    made.normalizer = normalizers.NFC()
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.encode_plain("e\u0301") == tokenizer.encode_plain("é")


def test_a_folder_without_a_tokenizer_makes_the_model_unusable(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"neither tokenizer\.json nor tokenizer\.model"):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"model": {"type": "Unheard"}}'])
def test_a_broken_tokenizer_json_makes_the_model_unusable(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelUnusable, match=r"tokenizer\.json cannot be read"):
        tokenizer_from_folder(tmp_path)


def test_wordpiece_makes_the_model_unusable(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelUnusable, match="WordPiece"):
        tokenizer_from_folder(tmp_path)
