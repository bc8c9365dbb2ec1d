"""Turns a sentence-transformers model into one int8 ONNX file, in a process of its own.

`python -m index.embedders.export MODEL_DIRECTORY OUTPUT_DIRECTORY`: torch never enters the process
that serves. Written are `model.onnx` (ids and mask in, unit vectors out) and `probes.npy`: what the
original model says of `PROBES`, so that the copy can be checked wherever it is loaded. torch ->
full.onnx -> fused.onnx (attention, norms, gelu: one node each) -> tables -> weights
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

EXPORT_VERSION = 2
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
    from sentence_transformers import SentenceTransformer

    original = SentenceTransformer(
        str(model),
        device="cpu",
        local_files_only=True,
        # The attention that fusion knows; the others give the same vectors.
        model_kwargs={"attn_implementation": "eager"},
    )
    original.eval()
    answers = original.encode(list(PROBES), normalize_embeddings=True)
    np.save(output / PROBES_FILE, np.asarray(answers, dtype=np.float32))
    full, fused = output / "full.onnx", output / "fused.onnx"
    _trace(original, full)
    _fuse(full, fused, config=getattr(original[0].auto_model, "config", None))
    _quantise(fused, output / MODEL_FILE)
    full.unlink()
    fused.unlink()


def _trace(original: "SentenceTransformer", full: Path) -> None:
    import torch

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
    axes = {0: "num_texts", 1: "num_tokens"}
    torch.onnx.export(
        Unit(),
        (sample["input_ids"], sample["attention_mask"]),
        str(full),
        input_names=["input_ids", "attention_mask"],
        output_names=["unit"],
        dynamic_axes={"input_ids": axes, "attention_mask": axes},
        opset_version=17,
        # Of the newer exporter's graphs the fusion knows next to nothing.
        dynamo=False,
    )


def _fuse(full: Path, fused: Path, *, config: object) -> None:
    """What the fusion does not know stays as it is: slower, and right all the same."""
    from onnxruntime.transformers.optimizer import optimize_model

    graph = optimize_model(
        str(full),
        model_type="bert",
        num_heads=getattr(config, "num_attention_heads", 0),
        hidden_size=getattr(config, "hidden_size", 0),
        opt_level=0,
    )
    graph.save_model_to_file(str(fused))


def _quantise(fused: Path, small: Path) -> None:
    """int8 weights, one scale per output channel; the table of word vectors too (memory).

    Weights take 7 of the 8 bits: AVX2 adds products up in 16 bits, which two of 8 bits overflow,
    so that a vector would be another one on each kind of CPU.
    """
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The shapes of fused nodes are not inferred.
    options = {"DefaultTensorType": TensorProto.FLOAT}
    tables = small.with_name("tables.onnx")
    for source, target, kinds, is_weight in (
        (fused, tables, ["Gather", "EmbedLayerNormalization"], False),
        (tables, small, ["MatMul", "Attention"], True),
    ):
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=kinds,
            per_channel=is_weight,
            reduce_range=is_weight,
            weight_type=QuantType.QInt8,
            extra_options=options,
        )
    tables.unlink()


if __name__ == "__main__":
    export(Path(sys.argv[1]), Path(sys.argv[2]))
