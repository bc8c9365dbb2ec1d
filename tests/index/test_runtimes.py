"""Exporting a model, keeping the export, and falling back; on a tiny model made here."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from index.embedders.embedder import load_embedder
from index.embedders.export import MODEL_FILE, PROBES, PROBES_FILE
from index.embedders.modelfiles import ModelFiles, read_model_files
from index.embedders.runtimes import (
    OnnxRuntime,
    Runtime,
    TorchRuntime,
    load_runtime,
    load_tokenizer,
)
from index.errors import EmbedderFault

# What sentence-transformers and torch say of one another is not ours to mend.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two thin layers with random weights and a vocabulary of letters."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    parts = tmp_path_factory.mktemp("parts")
    letters = [chr(code) for code in range(33, 127)]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    words += [f"##{letter}" for letter in letters]
    (parts / "vocab.txt").write_text("\n".join(words))
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    BertModel(config).save_pretrained(parts)
    BertTokenizerFast(vocab_file=str(parts / "vocab.txt")).save_pretrained(parts)
    transformer = Transformer(str(parts), max_seq_length=128)
    whole = SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension())], device="cpu"
    )
    directory = tmp_path_factory.mktemp("model") / "tiny"
    whole.save(str(directory), create_model_card=False)
    return directory


def load(files: ModelFiles, cache: Path) -> Runtime:
    return load_runtime(files, load_tokenizer(files), threads=1, cache=cache)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_a_model_is_exported_once_and_agrees_with_the_original(model: Path, cache: Path) -> None:
    files = read_model_files(str(model))
    runtime = load(files, cache)
    assert isinstance(runtime, OnnxRuntime)
    original = TorchRuntime(files).encode(PROBES)
    cosines = np.einsum("pd,pd->p", runtime.encode(PROBES), original)
    assert cosines.min() > 0.98

    kept = list((cache / "embedders").iterdir())
    assert [path.name.startswith(files.digest[:32]) for path in kept] == [True]
    before = (kept[0] / MODEL_FILE).stat().st_mtime_ns
    assert isinstance(load(files, cache), OnnxRuntime)
    assert (kept[0] / MODEL_FILE).stat().st_mtime_ns == before


def test_an_export_that_disagrees_with_the_original_is_not_used(
    model: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = read_model_files(str(model))
    load(files, cache)
    (kept,) = (cache / "embedders").iterdir()
    probes = np.load(kept / PROBES_FILE)
    np.save(kept / PROBES_FILE, -probes)
    with caplog.at_level(logging.WARNING):
        runtime = load(files, cache)
    np.save(kept / PROBES_FILE, probes)
    assert isinstance(runtime, TorchRuntime)
    assert "differs from the original" in caplog.text


def test_a_cache_that_cannot_be_written_falls_back_to_torch(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        runtime = load(read_model_files(str(model)), blocked)
    assert isinstance(runtime, TorchRuntime)
    assert "runs on torch" in caplog.text


def test_a_damaged_export_is_made_anew_and_then_kept(
    model: Path, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = read_model_files(str(model))
    load(files, cache)
    shutil.copytree(cache, tmp_path / "cache")
    (kept,) = (tmp_path / "cache" / "embedders").iterdir()
    whole = (kept / MODEL_FILE).read_bytes()
    (kept / MODEL_FILE).write_bytes(whole[: len(whole) // 2])
    assert isinstance(load(files, tmp_path / "cache"), OnnxRuntime)
    assert "damaged, and made anew" in caplog.text
    caplog.clear()
    assert isinstance(load(files, tmp_path / "cache"), OnnxRuntime)
    assert caplog.text == ""
    assert [each.name for each in kept.parent.iterdir()] == [kept.name]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b"{}"),
        ("config.json", b"{"),
        ("config.json", b"\xff"),
        ("model.safetensors", b"half"),
    ],
    ids=["no tokenizer", "torn one", "empty one", "torn config", "no text", "torn weights"],
)
def test_a_damaged_model_is_a_fault_that_names_where_it_is(
    model: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(model, damaged)
    (damaged / name).unlink()
    if content is not None:
        (damaged / name).write_bytes(content)
    blocked = tmp_path / "file"
    blocked.write_text("no folder: the export, which takes seconds to fail, is not tried")
    with pytest.raises(EmbedderFault, match=str(damaged)):
        load_embedder(str(damaged), cache=blocked)
