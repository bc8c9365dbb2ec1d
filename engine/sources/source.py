"""What a model is loaded from, whatever its files look like."""

from pathlib import Path
from typing import Protocol

import torch

from engine.sources.blueprint import Blueprint


class Source(Protocol):
    """An opened model. Tensors have the names that llama.cpp gives them in GGUF files
    (`token_embd.weight`, `blk.0.attn_q.weight`, …); the rows of queries and keys are ordered for
    a half-split RoPE; a norm's weight is what it multiplies by."""

    @property
    def path(self) -> Path:
        """The file or folder; tokenizer and chat template lie there too."""
        ...

    @property
    def names(self) -> frozenset[str]:
        """All tensors that a model must make use of; others the source has left out."""
        ...

    def blueprint(self, *, max_positions: int) -> Blueprint:
        """Of at most so many positions. Raises ModelUnusable for what is not understood."""
        ...

    def tensor(self, name: str) -> torch.Tensor:
        """float32, read anew. Raises ModelUnusable when there is none."""
        ...
