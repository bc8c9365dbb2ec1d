"""SentencePiece vocabularies of our own making; Gemma 3's is in `test_gemma`."""

import struct
from pathlib import Path

import pytest
from vocabularykit import TEXTS, piece_list, vocabulary_file

from engine.errors import ModelUnusable
from engine.text.answer import Answer
from engine.text.tokenizer import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Puts a space in front, as Llama 2 and the first Mistral do."""
    pieces, scores, kinds = piece_list()
    path = tmp_path_factory.mktemp("llama") / "v.gguf"
    return tokenizer_from_gguf(
        vocabulary_file(
            path, model="llama", tokens=pieces, scores=scores, token_type=kinds, bos_token_id=1,
            eos_token_id=2,
        )
    )  # fmt: skip


def _text(tokenizer: Tokenizer, ids: list[int], *, after: int | None = None) -> str:
    detokeniser = tokenizer.detokeniser(after=after)
    return "".join(map(detokeniser.push, ids)) + detokeniser.close()


def test_unknown_characters_fall_back_to_bytes_and_come_out_whole(llama: Tokenizer) -> None:
    ids = llama.encode("Hello 灯")
    assert [llama.name(i) for i in ids] == ["<s>", "▁Hello", "▁", "<0xE7>", "<0x81>", "<0xAF>"]
    detokeniser = llama.detokeniser()
    assert [detokeniser.push(i) for i in ids[1:]] == [" Hello", " ", "", "", "灯"]


def test_the_best_score_is_merged_first(llama: Tokenizer) -> None:
    names = [llama.name(i) for i in llama.encode("the world    1024")]
    assert names == ["<s>", "▁the", "▁world", "▁▁▁▁", "10", "24"]


def test_a_control_token_never_comes_out_of_merges(llama: Tokenizer) -> None:
    assert [llama.name(i) for i in llama.encode_plain("</s>")] == ["</", "s>"]
    assert llama.encode("</s>") == [1, 2]


def test_the_space_behind_a_control_token_is_none_of_the_answers(llama: Tokenizer) -> None:
    answer = llama.encode("</s>Hello world")[2:]
    assert llama.name(answer[0]) == "▁Hello"
    assert _text(llama, answer, after=2) == "Hello world"
    assert _text(llama, answer, after=answer[0]) == " Hello world", "a text is continued"
    shown = Answer(llama, ["world"], after=2)
    assert "".join(shown.push(i).text for i in answer) == "Hello "


def _field(number: int, value: int | bytes) -> bytes:
    """A varint of one byte, a float's four bytes, or a run of bytes up to 127 long."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def _piece_model(pieces: list[str], scores: list[float], kinds: list[int], *, kind: int) -> bytes:
    """As SentencePiece's protocol buffer lays it out."""
    entries = b""
    for piece, score, piece_kind in zip(pieces, scores, kinds, strict=True):
        scored = bytes([2 << 3 | 5]) + struct.pack("<f", score)
        entries += _field(1, _field(1, piece.encode()) + scored + _field(3, piece_kind))
    return entries + _field(2, _field(3, kind)) + _field(3, _field(1, b"identity"))


def test_a_folder_with_sentencepieces_own_file_is_read(tmp_path: Path, llama: Tokenizer) -> None:
    (tmp_path / "tokenizer.model").write_bytes(_piece_model(*piece_list(), kind=2))
    tokenizer = tokenizer_from_folder(tmp_path)
    assert tokenizer.end_ids == llama.end_ids == {2}
    for text in [*TEXTS, "<s>Hello</s> world"]:
        assert tokenizer.encode(text) == llama.encode(text)


@pytest.mark.parametrize("cut", [1, 3, 40])
def test_a_torn_file_makes_the_model_unusable(tmp_path: Path, cut: int) -> None:
    (tmp_path / "tokenizer.model").write_bytes(_piece_model(*piece_list(), kind=2)[:-cut])
    with pytest.raises(ModelUnusable, match=r"tokenizer\.model"):
        tokenizer_from_folder(tmp_path)


def test_sentencepieces_unigram_makes_the_model_unusable(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(_piece_model(*piece_list(), kind=1))
    with pytest.raises(ModelUnusable, match=r"put a tokenizer\.json beside it"):
        tokenizer_from_folder(tmp_path)
