import pytest
from enginekit import Kit
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.tokenizer import Tokenizer


def _decode(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokeniser = tokenizer.detokeniser()
    return [*(detokeniser.push(token_id) for token_id in ids), detokeniser.close()]


def test_digits_stand_alone_and_keep_the_newlines_before_them_together(smollm2: Kit) -> None:
    names = [smollm2.tokenizer.name(i) for i in smollm2.tokenizer.encode("a\n\n6 1234")]
    assert names == ["a", "ĊĊ", "6", "Ġ", "1", "2", "3", "4"]


def test_special_tokens_are_parsed(smollm2: Kit) -> None:
    assert smollm2.tokenizer.encode("<|im_start|>user\n")[0] == 1


# The vocabulary lacks some bytes: of control characters, and of planes that nobody writes in.
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], max_codepoint=0x1FFFF)))
@settings(max_examples=150)
def test_text_survives_the_way_to_ids_and_back(smollm2: Kit, text: str) -> None:
    assert "".join(_decode(smollm2.tokenizer, smollm2.tokenizer.encode(text))) == text


@pytest.mark.parametrize(
    "text", ["🚀👩‍👩‍👧", "今天天气很好,我们去公园吧。", "Ünïcödé “quotes”", "한국어"]
)
def test_no_piece_of_a_stream_splits_a_character(smollm2: Kit, text: str) -> None:
    pieces = _decode(smollm2.tokenizer, smollm2.tokenizer.encode(text))
    assert "".join(pieces) == text
    assert not any("�" in piece for piece in pieces)


def test_an_answer_that_ends_within_a_character_says_so(smollm2: Kit) -> None:
    ids = smollm2.tokenizer.encode("🦩")
    assert len(ids) > 1
    assert "".join(_decode(smollm2.tokenizer, ids[:-1])) == "�"


def test_a_beginning_token_is_put_in_front_once() -> None:
    tokenizer = Tokenizer(
        tokens=["a", "b", "<s>"], merges=[], special_ids=[2], end_ids=frozenset(), bos_id=2,
        pre_tokenizer="gpt-2",
    )  # fmt: skip
    assert tokenizer.encode("ab") == [2, 0, 1]
    assert tokenizer.encode("<s>ab") == [2, 0, 1]
