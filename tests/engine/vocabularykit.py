"""Vocabularies of our own making, in the files that models come in."""

import json
from pathlib import Path
from typing import Any

import gguf
from enginekit import byte_alphabet
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from engine.sources.gguf import GGUFFile

CORPUS = [
    "The lighthouse keeper counted 1024 steps, then 365 more.\n\nShe wrote it's done, we'll see.",
    "Der Leuchtturm wärmt; 灯塔很高。 Они идут домой 🚀🚀  two  spaces\tand tabs",
    "def total(values):\n    return sum(v * 12 for v in values)  # 3.14 HELLO World's",
] * 3
TEXTS = [
    "Hello world", " leading", "a\n\n6 1234567", "it's WE'LL see\r\n\n  x", "灯塔 🚀👩‍👩‍👧 Ünï",
    "tabs\t\tand   spaces  ", "def f(x):\n        return x/2//3", "...!?\n\n\n$100.50 ½ ²",
    "e\u0301",
]  # fmt: skip
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_byte_level(expression: str = LLAMA3, *, nfc: bool = False) -> Tokenizer:
    """A few hundred merges over `CORPUS`, split as `expression` says."""
    tokenizer = Tokenizer(models.BPE())
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(expression), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=byte_alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def parts_of(tokenizer: Tokenizer) -> tuple[list[str], list[str]]:
    """Tokens in id order and merges, as GGUF keeps them."""
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [" ".join(pair) for pair in model["merges"]]


def piece_list() -> tuple[list[str], list[float], list[int]]:
    """Pieces, scores and kinds as SentencePiece writes them: `<unk>`, `<s>`, `</s>`, the bytes,
    and pieces that score less the later they were found. `</` and `s>` could merge to `</s>`."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "[tab]"]
    kinds = [2, 3, 3, *([6] * 256), 4]
    found = ["▁t", "he", "▁the", "in", "▁a", "er", "ll", "▁w", "or", "▁wor", "ld", "▁world", "▁▁",
             "▁▁▁▁", "</", "s>", "10", "24", "▁H", "ell", "▁Hell", "▁Hello"]  # fmt: skip
    letters = sorted({char for text in CORPUS for char in text if char.isascii()} - {" ", "\n"})
    found += ["▁", *letters, ">", "<", "/", "é"]
    merged = list(dict.fromkeys(found))
    scores = [0.0] * len(pieces) + [-float(rank) for rank in range(len(merged))]
    return pieces + merged, scores, kinds + [1] * len(merged)


def vocabulary_file(path: Path, **keys: Any) -> GGUFFile:
    """A GGUF file of nothing but a vocabulary; `keys` go under `tokenizer.ggml.`."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in keys.items():
        name = f"tokenizer.ggml.{key}"
        match value:
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case str():
                writer.add_string(name, value)
            case _:
                writer.add_array(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFFile(path)
