"""Turns a sentence-transformers model into one int8 ONNX file, in a process of its own.

`python -m index.export MODEL_DIRECTORY OUTPUT_DIRECTORY`: torch never enters the process that
serves. Written are `model.onnx` (ids and mask in, unit vectors out) and `probes.npy`: what the
original model says of `PROBES`, so that the copy can be checked wherever it is loaded.
"""

import sys
from pathlib import Path

EXPORT_VERSION = 1
"""Part of the name of every kept export; raise it when this file writes something else."""

MODEL_FILE = "model.onnx"
PROBES_FILE = "probes.npy"

PROBES = (
    "How do I renew a library card?",
    "The tide comes in twice a day, and a little later every day.",
    "def area(radius): return 3.14159 * radius ** 2",
    "Name three rivers that cross a border.",
)


def export(model: Path, output: Path) -> None:
    """Write the int8 copy of `model` and the original's answers to the probes into `output`."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer

    original = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    original.eval()
    answers = original.encode(list(PROBES), normalize_embeddings=True)
    np.save(output / PROBES_FILE, np.asarray(answers, dtype=np.float32))

    class Unit(torch.nn.Module):
        """The whole model, pooling included, with vectors of unit length."""

        def __init__(self) -> None:
            super().__init__()
            self.original = original

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            # ids, mask: [num_texts, num_tokens] int64 -> [num_texts, dimension] float32
            features = {"input_ids": input_ids, "attention_mask": attention_mask}
            pooled = self.original(features)["sentence_embedding"]
            return torch.nn.functional.normalize(pooled, dim=-1)

    sample = original.tokenizer(list(PROBES), padding=True, return_tensors="pt")
    axes = {0: torch.export.Dim("num_texts"), 1: torch.export.Dim("num_tokens", min=2)}
    full = output / "full.onnx"
    torch.onnx.export(
        Unit(),
        (sample["input_ids"], sample["attention_mask"]),
        str(full),
        input_names=["input_ids", "attention_mask"],
        output_names=["unit"],
        dynamic_shapes={"input_ids": axes, "attention_mask": axes},
        external_data=False,
        dynamo=True,
    )
    _quantise(full, output / MODEL_FILE)
    full.unlink()


def _quantise(full: Path, small: Path) -> None:
    """int8 weights, one scale per output channel; the table of word vectors too (memory)."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        full,
        small,
        per_channel=True,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul", "Gather"],
    )


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
