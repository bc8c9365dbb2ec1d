"""A model in a GGUF file, or in the parts of one that was split."""

import mmap
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from engine.errors import ModelUnusable
from engine.sources.blueprint import Blueprint
from engine.sources.gguf_blueprint import (
    ROPE_DIVISORS,
    gguf_blueprint,
    gguf_family,
    neighbouring_pairs,
)
from engine.sources.gguf_header import GGUFHeader, TensorPlace, read_header
from engine.sources.shards import gguf_parts

_TOKENS = "tokenizer.ggml.tokens"
_TURNED = re.compile(r"blk\.\d+\.attn_[qk]\.(weight|bias)")


class GGUFFile:
    """See `engine.sources.source.Source`. Tensors are mapped, and dequantised when asked for."""

    def __init__(self, path: Path) -> None:
        """Raises ModelUnusable."""
        self.path = path
        self._parts = [_Part(part) for part in gguf_parts(path)]
        self._header = self._parts[0].header
        self._found = {name: part for part in self._parts for name in part.header.tensors}

    @property
    def architecture(self) -> str:
        """`llama`, `qwen2`, …"""
        return self._header.architecture

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value as Python sees it; `default` where the file lacks the key."""
        return self._header.get(key, default)

    def of_architecture(self, key: str, default: Any = None) -> Any:
        """`get` with the architecture's prefix."""
        return self._header.of_architecture(key, default)

    @property
    def tokens(self) -> Sequence[str]:
        """The vocabulary in id order."""
        return list(self.get(_TOKENS, []))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self._found) - {ROPE_DIVISORS}

    def shape(self, name: str) -> tuple[int, ...]:
        """Row-major. Raises ModelUnusable when the file lacks the tensor."""
        return self._part(name).header.tensors[name].shape

    def blueprint(self, *, max_positions: int) -> Blueprint:
        family = gguf_family(self._header)
        divisors = self._values(ROPE_DIVISORS) if ROPE_DIVISORS in self._found else None
        return gguf_blueprint(
            self._header,
            family,
            vocab_size=self.shape("token_embd.weight")[0],
            tied="output.weight" not in self._found,
            rope_divisors=None if divisors is None else tuple(divisors.tolist()),
            max_positions=max_positions,
        )

    def tensor(self, name: str) -> torch.Tensor:
        values = self._values(name)
        if _TURNED.fullmatch(name) and self._pairs_dim is not None:
            return _half_split(values, self._pairs_dim)
        return values

    def _values(self, name: str) -> torch.Tensor:
        return self._part(name).tensor(name)

    def _part(self, name: str) -> "_Part":
        try:
            return self._found[name]
        except KeyError:
            raise ModelUnusable(f"the GGUF file has no tensor {name}") from None

    @cached_property
    def _pairs_dim(self) -> int | None:
        return neighbouring_pairs(self._header)


class _Part:
    """One mapped file."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self.header: GGUFHeader = read_header(memoryview(self._mapped))
        except (OSError, ValueError) as error:
            raise ModelUnusable(f"{path} is not a readable GGUF file: {error}") from error

    def tensor(self, name: str) -> torch.Tensor:
        """float32, a copy of what is mapped."""
        place = self.header.tensors[name]
        try:
            kind = GGMLQuantizationType(place.kind)
            values = dequantize(self._stored(place, kind), kind)
        except (ValueError, NotImplementedError) as error:  # gguf: kind unknown
            raise ModelUnusable(f"tensor {name} cannot be read: {error}") from error
        # Writable, hence a copy: torch does not know read-only memory.
        return torch.from_numpy(np.require(values.reshape(place.shape), np.float32, ("C", "W")))

    def _stored(self, place: TensorPlace, kind: GGMLQuantizationType) -> np.ndarray:
        """As `gguf` wants it: floats as they are, of all else the bytes of a row."""
        block, block_bytes = GGML_QUANT_SIZES[kind]
        *rows, size = place.shape
        shape = (*rows, size // block * block_bytes)
        data = np.frombuffer(self._mapped, np.uint8, int(np.prod(shape)), place.offset)
        match kind:
            case GGMLQuantizationType.F32:
                return data.view(np.float32).reshape(place.shape)
            case GGMLQuantizationType.F16:
                return data.view(np.float16).reshape(place.shape)
            case _:
                return data.reshape(shape)


def _half_split(tensor: torch.Tensor, head_dim: int) -> torch.Tensor:
    """From rows for a RoPE of neighbouring pairs (0,1), (2,3) … to ours, which pairs a channel
    with the one half a head away."""
    pairs = tensor.view(-1, head_dim // 2, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)
