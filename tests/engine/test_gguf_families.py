"""GGUF files as llama.cpp's converter writes them, of all families: the same model as the folder
that they were converted from."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import quantize
from test_families import _ids, _loaded, _logits, _saved

from engine.errors import ModelUnusable
from engine.models.families import load_model
from engine.models.model import Model
from engine.sources.blueprint import Blueprint
from engine.sources.folder import ModelFolder
from engine.sources.gguf import GGUFFile
from engine.sources.gguf_header import BLOCKS

ROPE_KEYS = {
    "linear": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    "yarn": {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 64,
    },
}  # fmt: skip


def _interleaved(tensor: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Rows of a head in neighbouring pairs, as the architecture `llama` has them."""
    halves = tensor.view(-1, 2, head_dim // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape).contiguous()


def _convert(
    folder: Path,
    path: Path,
    architecture: str,
    *,
    keys: dict[str, Any] | None = None,
    tensors: dict[str, torch.Tensor] | None = None,
    split: int = 0,
) -> None:
    """`keys` and `tensors` are added; `split`: bytes of tensors in a part."""
    source = ModelFolder(folder)
    shape = source.blueprint(max_positions=256).shape
    if split:
        path = path.with_suffix("")  # the writer puts numbers and suffix on
    writer = gguf.GGUFWriter(path, architecture, split_max_size=split)
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(shape.max_positions)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_rope_freq_base(shape.rope.base)
    window = next((window for window in shape.windows if window), None)
    if window is not None:
        writer.add_sliding_window(window)
    for key, value in (keys or {}).items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}
        add[type(value)](f"{architecture}.{key}", value)
    for name in sorted(source.names):
        tensor = source.tensor(name)
        if architecture == "llama" and (".attn_q." in name or ".attn_k." in name):
            tensor = _interleaved(tensor, shape.head_dim)
        writer.add_tensor(name, tensor.numpy())
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _from_gguf(path: Path) -> Model:
    return load_model(GGUFFile(path), weights="fp32", max_positions=256, progress=lambda _: None)


def _blueprint(source: GGUFFile | ModelFolder) -> Blueprint:
    return source.blueprint(max_positions=4096)


@pytest.mark.parametrize(
    ("family", "architecture"),
    [("llama", "llama"), ("mistral", "llama"), ("qwen2", "qwen2"), ("qwen3", "qwen3"),
     ("gemma3", "gemma3")],
)  # fmt: skip
def test_a_converted_model_gives_the_same_logits(
    tmp_path: Path, family: str, architecture: str
) -> None:
    # A file says nothing of Gemma's scale of attention: it is that of the head size.
    own = {"llama": {"attention_bias": True}, "gemma3": {"query_pre_attn_scalar": 16}}
    _saved(tmp_path, family, sliding_window=40, num_hidden_layers=7, **own.get(family, {}))
    _convert(tmp_path, tmp_path / "model.gguf", architecture)
    ours, ids = _from_gguf(tmp_path / "model.gguf"), _ids(75)
    folder = _loaded(tmp_path)
    assert ours.shape.windows == folder.shape.windows
    assert (_logits(ours, ids) - _logits(folder, ids)).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ROPE_KEYS)
def test_keys_for_rope_mean_what_the_folders_config_means(tmp_path: Path, kind: str) -> None:
    rope = {"rope_type": kind, "factor": 4.0, "rope_theta": 5000.0}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = 64
    _saved(tmp_path, "qwen2", rope_parameters=rope)
    _convert(tmp_path, tmp_path / "model.gguf", "qwen2", keys=ROPE_KEYS[kind])
    folder, file = _blueprint(ModelFolder(tmp_path)), _blueprint(GGUFFile(tmp_path / "model.gguf"))
    theirs, ours = folder.shape.rope, file.shape.rope
    assert ours.frequencies(16) == pytest.approx(theirs.frequencies(16))
    assert ours.magnitude == pytest.approx(theirs.magnitude)
    assert file.shape.max_positions == folder.shape.max_positions


def test_llama_3s_scaling_is_read_from_its_tensor(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 5000.0,
    }  # fmt: skip
    _saved(tmp_path, "llama", rope_parameters=rope)
    shape = _blueprint(ModelFolder(tmp_path)).shape
    scaled = torch.tensor(shape.rope.frequencies(16))
    plain = 5000.0 ** -(torch.arange(0, 16, 2) / 16)
    divisors = {"rope_freqs.weight": plain / scaled}
    _convert(tmp_path, tmp_path / "model.gguf", "llama", tensors=divisors)
    ours, ids = _from_gguf(tmp_path / "model.gguf"), _ids(75)
    assert (_logits(ours, ids) - _logits(_loaded(tmp_path), ids)).abs().max() < 1e-4


def test_a_file_in_parts_is_read_from_any_of_them(tmp_path: Path) -> None:
    _saved(tmp_path, "llama")
    _convert(tmp_path, tmp_path / "model.gguf", "llama", split=100_000)
    parts = sorted(tmp_path.glob("*.gguf"))
    assert len(parts) > 2
    ids = _ids(20)
    expected = _logits(_loaded(tmp_path), ids)
    assert (_logits(_from_gguf(parts[-1]), ids) - expected).abs().max() < 1e-5
    parts[1].unlink()
    with pytest.raises(ModelUnusable, match=parts[1].name):
        GGUFFile(parts[0])


QUANTISED = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0")
"""What the `gguf` package writes."""
READ = (
    *QUANTISED, "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS",
    "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4",
)  # fmt: skip
"""What it reads."""


@pytest.mark.parametrize("kind", QUANTISED)
def test_a_quantised_tensor_has_its_shape_and_nearly_its_values(tmp_path: Path, kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((3, 512)).astype(np.float32)
    if kind.startswith("TQ"):
        values = np.sign(values)
    form = GGMLQuantizationType[kind]
    stored = quantize(values, form)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    raw = stored if stored.dtype == np.float16 else stored.view(np.uint8)
    writer.add_tensor("other.weight", np.ones((5,), np.float32))
    writer.add_tensor("token_embd.weight", raw, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUFFile(tmp_path / "m.gguf")
    read = file.tensor("token_embd.weight")
    assert read.shape == file.shape("token_embd.weight") == (3, 512)
    assert np.array_equal(read.numpy(), gguf.quants.dequantize(stored, form).reshape(3, 512))
    assert np.abs(read.numpy() - values).max() < 0.5
    assert file.tensor("other.weight").tolist() == [1.0] * 5


@pytest.mark.parametrize("kind", sorted(set(READ) - {"F16"}))
def test_any_block_of_a_quantised_tensor_is_read_as_the_library_reads_it(
    tmp_path: Path, kind: str
) -> None:
    """Random bytes: every field of a block has some value, or none that is a number."""
    form = GGMLQuantizationType[kind]
    numbers, num_bytes = GGML_QUANT_SIZES[form]
    blocks = 512 // numbers
    raw = np.random.default_rng(2).integers(0, 256, (3, blocks * num_bytes), dtype=np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("token_embd.weight", raw, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with np.errstate(all="ignore"):
        read = GGUFFile(tmp_path / "m.gguf").tensor("token_embd.weight")
        expected = gguf.quants.dequantize(raw, form)
    assert read.shape == (3, 512)
    assert np.array_equal(read.numpy(), expected.reshape(3, 512), equal_nan=True)


def test_all_kinds_that_the_library_reads_are_known() -> None:
    assert set(READ) - {"F16"} == {kind.name for kind in gguf.quants._type_traits}
    assert {GGMLQuantizationType[kind] for kind in READ} <= set(BLOCKS)


def test_all_kinds_of_metadata_are_read_as_the_library_reads_them(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for number, kind in enumerate(("uint8", "int8", "uint16", "int16", "uint32", "int32",
                                   "uint64", "int64")):  # fmt: skip
        getattr(writer, f"add_{kind}")(f"a.{kind}", 100 + number)
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "π\n")
    writer.add_array("a.strings", ["", "é", "x" * 300])
    writer.add_array("a.numbers", [1, -2, 3])
    writer.add_array("a.bools", [True, False])
    writer.add_tensor("t", np.zeros((2, 3), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file, theirs = GGUFFile(tmp_path / "m.gguf"), gguf.GGUFReader(tmp_path / "m.gguf")
    keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
    assert len(keys) == 16
    for key in keys:
        assert file.get(key) == theirs.fields[key].contents(), key


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"expert_count": 8}, "expert_count"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"rope.scaling.type": "longrope"}, "longrope"),
        ({"rope.dimension_count": 8}, "dimension_count"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(
    tmp_path: Path, keys: dict[str, Any], named: str
) -> None:
    _saved(tmp_path, "llama")
    _convert(tmp_path, tmp_path / "model.gguf", "llama", keys=keys)
    with pytest.raises(ModelUnusable, match=named):
        _from_gguf(tmp_path / "model.gguf")


def test_a_tensor_that_the_family_does_not_have_is_refused(tmp_path: Path) -> None:
    _saved(tmp_path, "llama")
    extra = {"blk.0.attn_sinks.weight": torch.zeros(4)}
    _convert(tmp_path, tmp_path / "model.gguf", "llama", tensors=extra)
    with pytest.raises(ModelUnusable, match="attn_sinks"):
        _from_gguf(tmp_path / "model.gguf")


def test_a_file_that_is_cut_off_is_unusable(tmp_path: Path) -> None:
    _saved(tmp_path, "llama")
    path = tmp_path / "model.gguf"
    _convert(tmp_path, path, "llama")
    whole = path.read_bytes()
    for size in (3, 20, 200, len(whole) // 2):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelUnusable):
            _from_gguf(path)
