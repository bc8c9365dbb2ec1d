"""Embedding models of the hub, from a cache made by the test; the network is switched off."""

from pathlib import Path

import huggingface_hub.constants
import pytest

from index.embedders.hub import hub_folder
from index.embedders.modelfiles import read_model_files
from index.errors import EmbedderFault

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def write(cache: Path, *names: str) -> Path:
    root = cache / "models--some--model"
    folder = root / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)
    for name in names:
        (folder / name).write_text("[]")
    return folder


def test_a_cached_model_is_used_without_the_network(cache: Path) -> None:
    folder = write(cache, "modules.json", "tokenizer.json", "model.safetensors")
    assert hub_folder("some/model") == folder
    assert read_model_files("hf:some/model").directory == folder


def test_a_model_that_is_not_there_and_cannot_be_downloaded_is_named() -> None:
    with pytest.raises(EmbedderFault, match="hf:some/other is not in the local cache"):
        hub_folder("some/other")


@pytest.mark.parametrize("name", ["a/b/c", "..", "-x/y"])
def test_what_is_no_name_on_the_hub_is_refused(name: str) -> None:
    with pytest.raises(EmbedderFault, match="no name of a model"):
        hub_folder(name)


def test_half_a_download_is_not_taken_for_a_model(cache: Path) -> None:
    write(cache, "modules.json")
    with pytest.raises(EmbedderFault, match="not in the local cache"):
        hub_folder("some/model")
