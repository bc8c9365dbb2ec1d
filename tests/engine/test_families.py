"""Tiny random models of each family, saved by transformers and loaded by us: the same logits."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.batch import Chunk, build_batch
from engine.config import WeightsDtype
from engine.errors import ModelUnusable
from engine.kernels.bindings import Kernels
from engine.kv.pages import PageLayout
from engine.kv.pool import PagePool
from engine.models.families import load_model
from engine.models.model import Model
from engine.sources.folder import ModelFolder

VOCAB = 131
CLASSES: dict[str, tuple[type[PreTrainedConfig], type[PreTrainedModel]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
}
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 72, "intermediate_size": 80, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "attn_implementation": "eager",
}  # fmt: skip


def _saved(folder: Path, family: str, *, saving: dict[str, Any] | None = None, **sizes: Any) -> Any:
    """A model with weights that make a difference: norms and biases are no ones and zeros."""
    torch.manual_seed(5)
    config_class, model_class = CLASSES[family]
    model = model_class(config_class(**(SIZES | sizes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 0.0 if family == "gemma3" or not name.endswith("norm.weight") else 1.0
            parameter.copy_(around + 0.15 * torch.randn_like(parameter))
    model.save_pretrained(folder, **(saving or {}))
    return model


def _loaded(folder: Path, weights: WeightsDtype = "fp32", **more: Any) -> Model:
    return load_model(
        ModelFolder(folder), weights=weights, max_positions=256, progress=lambda _: None, **more
    )


def _logits(
    model: Model, ids: list[int], *, kv_dtype: str = "fp32", chunk: int = 1000
) -> torch.Tensor:
    """Of all positions, computed so many at a time."""
    layout = PageLayout.of(model.shape, dtype=kv_dtype, page_tokens=32)
    pool = PagePool(layout, layout.num_pages(len(ids)))
    rows = []
    for first in range(0, len(ids), chunk):
        part = ids[first : first + chunk]
        pages = range(layout.num_pages(first + len(part)))
        batch = build_batch(
            [Chunk(token_ids=part, first=first, pages=pages, samples=True)], page_tokens=32
        )
        everywhere = torch.arange(len(part))
        rows.append(model.forward(msgspec.structs.replace(batch, sampled_rows=everywhere), pool))
    return torch.cat(rows)


def _ids(count: int) -> list[int]:
    return torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(3)).tolist()


@torch.inference_mode()
def _theirs(model: Any, ids: list[int]) -> torch.Tensor:
    return model(torch.tensor([ids])).logits[0].float()


def _check(model: Any, ours: Model, num_tokens: int = 75) -> None:
    """Logits of all positions in one prefill; by chunks and single steps; greedy tokens."""
    ids = _ids(num_tokens)
    expected = _theirs(model, ids)
    assert expected.std() > 0.1, "a model that says nothing proves nothing"
    assert (_logits(ours, ids) - expected).abs().max() < 1e-4
    assert (_logits(ours, ids, chunk=24) - expected).abs().max() < 1e-4
    greedy = list(ids[:40])
    for _ in range(4):
        token = int(_theirs(model, greedy)[-1].argmax())
        assert int(_logits(ours, greedy, chunk=39)[-1].argmax()) == token
        greedy.append(token)


@pytest.mark.parametrize("family", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_family_gives_the_logits_of_transformers(tmp_path: Path, family: str, tied: bool) -> None:
    theirs = _saved(tmp_path, family, tie_word_embeddings=tied)
    ours = _loaded(tmp_path)
    assert ModelFolder(tmp_path).blueprint(max_positions=9).tied == tied
    _check(theirs, ours)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"),
    [(9, 3, 64), (14, 2, 64), (32, 8, 80), (4, 1, 256), (8, 8, 96), (3, 1, 128)],
)
def test_heads_of_all_geometries(
    tmp_path: Path, family: str, heads: int, kv_heads: int, head_dim: int
) -> None:
    theirs = _saved(
        tmp_path, family, num_attention_heads=heads, num_key_value_heads=kv_heads,
        head_dim=head_dim, hidden_size=heads * 4, num_hidden_layers=2,
    )  # fmt: skip
    ids = _ids(37)
    assert (_logits(_loaded(tmp_path), ids) - _theirs(theirs, ids)).abs().max() < 1e-4


WINDOWS = {
    "mistral": {},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1},
    "qwen3": {"use_sliding_window": True, "max_window_layers": 2},
    "gemma3": {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
}


@pytest.mark.parametrize(
    ("family", "window"),
    [
        *(("mistral", window) for window in (1, 31, 32, 33, 74, 75)),
        ("gemma3", 1), ("gemma3", 32), ("gemma3", 33), ("qwen2", 33), ("qwen3", 31),
    ],
)  # fmt: skip
def test_windows_end_where_those_of_transformers_do(
    tmp_path: Path, family: str, window: int
) -> None:
    theirs = _saved(tmp_path, family, sliding_window=window, **WINDOWS[family])
    ours = _loaded(tmp_path)
    assert window in ours.shape.windows
    _check(theirs, ours)


def test_layers_without_a_list_of_types_follow_the_familys_pattern(tmp_path: Path) -> None:
    _saved(tmp_path, "gemma3", num_hidden_layers=7, sliding_window=20)
    config = json.loads((tmp_path / "config.json").read_text())
    listed = ModelFolder(tmp_path).blueprint(max_positions=9).shape
    del config["layer_types"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert ModelFolder(tmp_path).blueprint(max_positions=9).shape == listed
    assert listed.windows == (20, 20, 20, 20, 20, None, 20)


ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn with all its settings": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        "beta_fast": 20.0, "beta_slow": 2.0, "mscale": 0.7, "mscale_all_dim": 1.1,
        "truncate": False,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
}  # fmt: skip


@pytest.mark.parametrize("name", ROPES)
def test_each_scaling_of_rope(tmp_path: Path, name: str) -> None:
    rope = {"rope_theta": 5000.0, **ROPES[name]}
    theirs = _saved(tmp_path, "llama", head_dim=64, rope_parameters=rope)
    ours = _loaded(tmp_path)
    assert (ours.shape.rope.scaling is not None) == (name != "dynamic")
    _check(theirs, ours, num_tokens=150)


def test_gemmas_scaling_is_that_of_layers_that_see_everything(tmp_path: Path) -> None:
    theirs = _saved(
        tmp_path, "gemma3", query_pre_attn_scalar=24, sliding_window=40,
        layer_types=WINDOWS["gemma3"]["layer_types"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 90000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
        },
    )  # fmt: skip
    _check(theirs, _loaded(tmp_path), num_tokens=150)


def test_the_older_form_of_a_config_means_the_same(tmp_path: Path) -> None:
    """As it stands in most folders: `rope_theta` and `rope_scaling`, `torch_dtype`."""
    rope = {"rope_theta": 5000.0, **ROPES["llama3"]}
    _saved(tmp_path, "llama", rope_parameters=rope)
    new = ModelFolder(tmp_path).blueprint(max_positions=256)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config |= {"rope_theta": 5000.0, "rope_scaling": ROPES["llama3"], "torch_dtype": "float32"}
    path.write_text(json.dumps(config))
    assert ModelFolder(tmp_path).blueprint(max_positions=256) == new


def test_the_text_part_of_a_model_of_text_and_images_is_served(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    theirs = _saved(tmp_path, "gemma3")
    text = json.loads((tmp_path / "config.json").read_text())
    outer = {"model_type": "gemma3", "text_config": text, "vision_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    renamed["vision_tower.patches.weight"] = torch.ones(3)
    save_file(renamed, tmp_path / "model.safetensors")
    _check(theirs, _loaded(tmp_path))


def test_biases_of_all_projections_are_added(tmp_path: Path) -> None:
    theirs = _saved(tmp_path, "llama", attention_bias=True, mlp_bias=True)
    _check(theirs, _loaded(tmp_path))


def test_biases_of_some_projections_that_are_one_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    _saved(tmp_path, "qwen2")
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.self_attn.v_proj.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelUnusable, match="only some have a bias"):
        _loaded(tmp_path)


def test_a_model_in_shards_is_read_through_its_index(tmp_path: Path) -> None:
    theirs = _saved(tmp_path, "qwen2", saving={"max_shard_size": "40KB"})
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    _check(theirs, _loaded(tmp_path))
    next(tmp_path.glob("model-00002-*")).unlink()
    with pytest.raises(ModelUnusable, match="lacks model-00002"):
        ModelFolder(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_files_of_half_precision_are_read_as_they_are(tmp_path: Path, dtype: torch.dtype) -> None:
    _saved(tmp_path, "qwen3").to(dtype).save_pretrained(tmp_path)
    _check(Qwen3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32), _loaded(tmp_path))


@pytest.mark.parametrize("family", CLASSES)
def test_bf16_weights_give_nearly_the_same(tmp_path: Path, family: str) -> None:
    theirs, ids = _saved(tmp_path, family), _ids(60)
    expected = _theirs(theirs, ids)
    ours = _loaded(tmp_path, "bf16")
    assert ours.weights == "bf16"
    assert (_logits(ours, ids) - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("family", CLASSES)
def test_int8_weights_and_pages_give_nearly_the_same(
    tmp_path: Path, family: str, kernels: Kernels
) -> None:
    theirs, ids = _saved(tmp_path, family, sliding_window=40), _ids(60)
    expected = _theirs(theirs, ids)
    ours = _loaded(tmp_path, "int8", kernels=kernels)
    assert ours.weights == "int8"
    assert (_logits(ours, ids) - expected).norm() < 0.05 * expected.norm()
    rounded = _logits(ours, ids, kv_dtype="int8", chunk=24)
    assert (rounded - expected).norm() < 0.05 * expected.norm()


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("llama", {"model_type": "mixtral"}),
    "softcapping": ("gemma3", {"final_logit_softcapping": 30.0}),
    "longrope": ("llama", {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}),
    "part of each head": ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}),
    "mrope_section": ("qwen2", {"rope_scaling": {"mrope_section": [1]}, "rope_parameters": None}),
    "activation": ("llama", {"hidden_act": "relu"}),
    "quantization_config": ("llama", {"quantization_config": {"quant_method": "awq"}}),
    "bidirectional": ("gemma3", {"use_bidirectional_attention": True}),
    "layer_types": ("qwen3", {"layer_types": ["chunked_attention"] * 3}),
    "hidden_size": ("llama", {"hidden_size": "large"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, what: str) -> None:
    family, changes = REFUSED[what]
    _saved(tmp_path, family)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ModelUnusable, match=what):
        _loaded(tmp_path)


def test_a_tensor_that_the_family_does_not_have_is_refused(tmp_path: Path) -> None:
    """Such as experts, or norms of heads in what says that it is a Llama."""
    _saved(tmp_path, "qwen3")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
    with pytest.raises(ModelUnusable, match=r"attn_k_norm.*and 3 more"):
        _loaded(tmp_path)


def test_a_tensor_that_is_missing_is_named(tmp_path: Path) -> None:
    _saved(tmp_path, "llama")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "qwen3"}))
    with pytest.raises(ModelUnusable, match=r"no tensor for blk\.0\.attn_q_norm\.weight"):
        _loaded(tmp_path)
