"""Reads GGUF files through the `gguf` package: metadata, and tensors dequantised to float32."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from numpy.typing import NDArray

from engine.errors import ModelUnusable

_TOKENS = "tokenizer.ggml.tokens"


class GGUFFile:
    """An open file. Tensors are mapped and read when asked for."""

    def __init__(self, path: Path) -> None:
        try:
            self._reader = GGUFReader(path)
        except (OSError, ValueError) as error:
            raise ModelUnusable(f"{path} is not a readable GGUF file: {error}") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    @property
    def architecture(self) -> str:
        """`llama`, `qwen2`, …"""
        return str(self.get("general.architecture"))

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value as Python sees it; `default` where the file lacks the key."""
        field = self._reader.fields.get(key)
        return default if field is None else field.contents()

    def of_architecture(self, key: str, default: Any = None) -> Any:
        """`get` with the architecture's prefix."""
        return self.get(f"{self.architecture}.{key}", default)

    @property
    def tokens(self) -> Sequence[str]:
        """The vocabulary in id order."""
        return list(self.get(_TOKENS, []))

    def has_tensor(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Row-major, as torch sees it: GGUF writes the innermost dimension first."""
        return tuple(int(size) for size in reversed(self._find(name).shape))

    def tensor(self, name: str) -> NDArray[np.float32]:
        """Dequantised, of shape `shape(name)`. Raises ModelUnusable when the file lacks it."""
        found = self._find(name)
        values = dequantize(found.data, found.tensor_type).reshape(self.shape(name))
        # Writable, hence a copy of what is mapped: torch does not know read-only memory.
        return np.require(values, np.float32, ("C", "W"))

    def _find(self, name: str) -> Any:
        try:
            return self._tensors[name]
        except KeyError:
            raise ModelUnusable(f"the GGUF file has no tensor {name}") from None
