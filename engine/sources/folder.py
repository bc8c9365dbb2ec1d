"""A model in a folder as transformers saves it: config.json and safetensors."""

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelUnusable
from engine.sources.blueprint import GEMMA3, Blueprint, Family
from engine.sources.folder_blueprint import folder_blueprint, folder_family
from engine.sources.shards import safetensors_files

_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "")
"""What stands before the layers: in models of text; in old and new ones of text and images; and
where only the part without the output layer was saved."""
_HEADS = ("lm_head.weight", "language_model.lm_head.weight")
_BUFFER = re.compile(r".*\.rotary_emb\.inv_freq")  # in old files; worked out anew
_TOP = {"embed_tokens": "token_embd", "norm": "output_norm"}
_LAYER = re.compile(r"layers\.(\d+)\.(.+)\.(weight|bias)")
_LAYER_PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip
_GEMMA3_PARTS = _LAYER_PARTS | {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class ModelFolder:
    """See `engine.sources.source.Source`."""

    def __init__(self, path: Path) -> None:
        """Raises ModelUnusable."""
        self.path = path
        self._config = _json(path / "config.json")
        self._files = [_opened(file) for file in safetensors_files(path)]
        stored = {name: file for file in self._files for name in file.keys()}  # noqa: SIM118 - not a dict
        self._prefix = next((p for p in _PREFIXES if f"{p}embed_tokens.weight" in stored), "model.")
        self._stored = {
            canonical: (name, file)
            for name, file in stored.items()
            if (canonical := self._canonical(name)) is not None
        }

    @cached_property
    def _family(self) -> Family:
        return folder_family(self._config)

    @cached_property
    def names(self) -> frozenset[str]:
        tied = self.blueprint(max_positions=1).tied
        return frozenset(self._stored) - ({"output.weight"} if tied else set())

    def blueprint(self, *, max_positions: int) -> Blueprint:
        return folder_blueprint(
            self._config,
            vocab_size=self._slice("token_embd.weight").get_shape()[0],
            has_head="output.weight" in self._stored,
            max_positions=max_positions,
        )

    def tensor(self, name: str) -> torch.Tensor:
        stored: torch.Tensor = self._slice(name)[:]
        if stored.dtype not in _DTYPES:
            raise ModelUnusable(f"tensor {name} of {stored.dtype} is not supported")
        values = stored.float()
        # Gemma's norms multiply by 1 + w.
        return values + 1 if self._family is GEMMA3 and name.endswith("norm.weight") else values

    def _slice(self, name: str) -> Any:
        try:
            stored, file = self._stored[name]
        except KeyError:
            raise ModelUnusable(f"{self.path} has no tensor for {name}") from None
        return file.get_slice(stored)

    def _canonical(self, name: str) -> str | None:
        """What we call a tensor; None for what belongs to no text model. A name that we do not
        know stays as it is."""
        if name in _HEADS:
            return "output.weight"
        if _BUFFER.fullmatch(name) or not name.startswith(self._prefix):
            return None
        rest = name.removeprefix(self._prefix)
        top, _, kind = rest.rpartition(".")
        if top in _TOP:
            return f"{_TOP[top]}.{kind}"
        match = _LAYER.fullmatch(rest)
        parts = _GEMMA3_PARTS if self._family is GEMMA3 else _LAYER_PARTS
        if match is None or match[2] not in parts:
            return name
        return f"blk.{match[1]}.{parts[match[2]]}.{match[3]}"


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (OSError, SafetensorError) as error:
        raise ModelUnusable(f"{path} is not a readable safetensors file: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error
