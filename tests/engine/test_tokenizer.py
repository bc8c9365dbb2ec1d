from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from enginekit import Kit, byte_alphabet
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularykit import LLAMA3, TEXTS, parts_of, train_byte_level, vocabulary_file

from engine.errors import ModelUnusable
from engine.text.tokenizer import Tokenizer, tokenizer_from_gguf

TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _decode(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokeniser = tokenizer.detokeniser()
    return [*(detokeniser.push(token_id) for token_id in ids), detokeniser.close()]


def _bytes_and(path: Path, specials: list[str], kinds: list[int], **keys: object) -> Tokenizer:
    """The 256 bytes and some special tokens, from id 256 on."""
    file = vocabulary_file(
        path / "v.gguf", model="gpt2", tokens=[*byte_alphabet(), *specials],
        token_type=[1] * 256 + kinds, **keys,
    )  # fmt: skip
    return tokenizer_from_gguf(file)


def test_digits_stand_alone_and_keep_the_newlines_before_them_together(smollm2: Kit) -> None:
    names = [smollm2.tokenizer.name(i) for i in smollm2.tokenizer.encode("a\n\n6 1234")]
    assert names == ["a", "ĊĊ", "6", "Ġ", "1", "2", "3", "4"]


def test_special_tokens_are_parsed(smollm2: Kit) -> None:
    assert smollm2.tokenizer.encode("<|im_start|>user\n")[0] == 1


def test_plain_encoding_parses_none(smollm2: Kit) -> None:
    ids = smollm2.tokenizer.encode_plain("<|im_start|>")
    assert len(ids) > 1
    assert "".join(_decode(smollm2.tokenizer, ids)) == "<|im_start|>"


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


def test_several_threads_get_the_ids_of_one(smollm2: Kit) -> None:
    texts = [f"{text} {number}" for number in range(20) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(smollm2.tokenizer.encode, texts)) == [
            smollm2.tokenizer.encode(text) for text in texts
        ]


@pytest.mark.parametrize(
    ("pre", "expression", "nfc"),
    [
        ("llama-bpe", LLAMA3, False),
        ("qwen2", LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), True),
        ("tekken", TEKKEN, False),
    ],
)
def test_a_gguf_vocabulary_splits_text_as_the_one_it_was_made_from(
    tmp_path: Path, pre: str, expression: str, nfc: bool
) -> None:
    trained = train_byte_level(expression, nfc=nfc)
    trained.model.ignore_merges = pre != "qwen2"
    tokens, merges = parts_of(trained)
    file = vocabulary_file(
        tmp_path / "v.gguf", model="gpt2", pre=pre, tokens=tokens, merges=merges,
        token_type=[1] * len(tokens),
    )  # fmt: skip
    ours = tokenizer_from_gguf(file)
    for text in TEXTS:
        assert ours.encode(text) == trained.encode(text).ids, text


@pytest.mark.parametrize("pre", ["gpt-2", "default", "smollm", "llama-bpe", "tekken"])
def test_bytes_alone_bring_any_text_back(tmp_path: Path, pre: str) -> None:
    tokenizer = _bytes_and(tmp_path, [], [], pre=pre)
    for text in TEXTS:
        assert "".join(_decode(tokenizer, tokenizer.encode(text))) == text


def test_a_beginning_token_is_put_in_front_once(tmp_path: Path) -> None:
    tokenizer = _bytes_and(
        tmp_path, ["<s>"], [3], pre="gpt-2", bos_token_id=256, add_bos_token=True
    )
    assert (
        tokenizer.encode("!") == tokenizer.encode("<s>!") == [256, tokenizer.encode_plain("!")[0]]
    )


def test_llama_3_begins_prompts_though_its_file_does_not_say(tmp_path: Path) -> None:
    tokenizer = _bytes_and(tmp_path, ["<s>"], [3], pre="llama-bpe", bos_token_id=256)
    assert tokenizer.encode("!")[0] == 256


def test_a_turns_end_ends_answers_though_the_file_names_another_token(tmp_path: Path) -> None:
    specials = ["<|end_of_text|>", "<|eot_id|>", "<|python_tag|>"]
    tokenizer = _bytes_and(tmp_path, specials, [3] * 3, pre="llama-bpe", eos_token_id=256)
    assert tokenizer.end_ids == {256, 257}


def test_a_user_defined_token_is_parsed_and_is_text_of_the_answer(tmp_path: Path) -> None:
    tokenizer = _bytes_and(tmp_path, ["<tool_call>"], [4], pre="qwen2")
    assert tokenizer.encode("<tool_call>") == [256]
    assert tokenizer.bytes_of(256) == b"<tool_call>"
    assert tokenizer.special_texts == ()


@pytest.mark.parametrize(("model", "pre"), [("bert", "default"), ("gpt2", "unheard-of")])
def test_a_vocabulary_of_another_kind_makes_the_model_unusable(
    tmp_path: Path, model: str, pre: str
) -> None:
    file = vocabulary_file(tmp_path / "v.gguf", model=model, pre=pre, tokens=["a"])
    with pytest.raises(ModelUnusable, match=f"{model if model == 'bert' else pre}.*supported"):
        tokenizer_from_gguf(file)


def test_merges_that_do_not_fit_make_the_model_unusable(tmp_path: Path) -> None:
    file = vocabulary_file(
        tmp_path / "v.gguf", model="gpt2", pre="gpt-2", tokens=["a"], merges=["a b"]
    )
    with pytest.raises(ModelUnusable, match="broken"):
        tokenizer_from_gguf(file)
