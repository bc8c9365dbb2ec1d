"""How a model is built, by the headers of its files: without torch, and without their tensors."""

import mmap
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import ModelUnusable
from engine.sources.blueprint import Blueprint
from engine.sources.folder_blueprint import folder_blueprint
from engine.sources.gguf_blueprint import gguf_blueprint, gguf_family
from engine.sources.gguf_header import GGUFHeader, read_header
from engine.sources.shards import gguf_parts, safetensors_files

_EMBEDDING = "token_embd.weight"
_HEAD = "output.weight"
_FOLDER_EMBEDDING = "embed_tokens.weight"
_FOLDER_HEAD = "lm_head.weight"
_LENGTH = struct.Struct("<Q")
_TOKENS = "tokenizer.ggml.tokens"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model")
_READ_FAULTS = (
    OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RecursionError,
    struct.error, msgspec.MsgspecError,
)  # fmt: skip
"""What headers may bring about that nobody wrote in good faith."""


class _Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a safetensors header."""

    shape: tuple[int, ...]
    data_offsets: tuple[int, int]
    """From the end of the header."""


def survey(path: Path, *, max_positions: int) -> Blueprint:
    """Of a GGUF file, or of a folder as transformers saves it; but for the numbers of a RoPE that
    a GGUF file has as a tensor. Raises ModelUnusable."""
    try:
        return _of_folder(path, max_positions) if path.is_dir() else _of_gguf(path, max_positions)
    except _READ_FAULTS as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error


def _of_gguf(path: Path, max_positions: int) -> Blueprint:
    headers = [_header(part) for part in gguf_parts(path)]
    tensors = {name: place for header in headers for name, place in header.tensors.items()}
    if _EMBEDDING not in tensors:
        raise ModelUnusable(f"{path} has no tensor {_EMBEDDING}")
    if not headers[0].get(_TOKENS):
        raise ModelUnusable(f"{path} has no vocabulary ({_TOKENS})")
    blueprint = gguf_blueprint(
        headers[0],
        gguf_family(headers[0]),
        vocab_size=tensors[_EMBEDDING].shape[0],
        tied=_HEAD not in tensors,
        rope_divisors=None,
        max_positions=max_positions,
    )
    _check_last_layer(path, f"blk.{blueprint.shape.num_layers - 1}.", tensors)
    return blueprint


def _header(path: Path) -> GGUFHeader:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header = read_header(memoryview(mapped))
    _check_end(path, max((place.end for place in header.tensors.values()), default=0), len(mapped))
    return header


def _of_folder(path: Path, max_positions: int) -> Blueprint:
    raw = msgspec.json.decode((path / "config.json").read_bytes(), type=dict[str, Any])
    tensors = {name: one for file in safetensors_files(path) for name, one in _places(file).items()}
    embeddings = [one for name, one in tensors.items() if name.endswith(_FOLDER_EMBEDDING)]
    if not embeddings:
        raise ModelUnusable(f"{path} has no tensor {_FOLDER_EMBEDDING}")
    if not any(_is_filled(path / name) for name in _TOKENIZERS):
        raise ModelUnusable(f"{path} has neither {' nor '.join(_TOKENIZERS)}")
    blueprint = folder_blueprint(
        raw,
        vocab_size=embeddings[0].shape[0],
        has_head=any(name.endswith(_FOLDER_HEAD) for name in tensors),
        max_positions=max_positions,
    )
    _check_last_layer(path, f"layers.{blueprint.shape.num_layers - 1}.", tensors)
    return blueprint


def _places(path: Path) -> dict[str, _Tensor]:
    """A safetensors file begins with the length of its header, which is JSON."""
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        _check_end(path, _LENGTH.size + length, size)
        header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
    header.pop("__metadata__", None)
    tensors = {name: msgspec.json.decode(raw, type=_Tensor) for name, raw in header.items()}
    last = max((tensor.data_offsets[1] for tensor in tensors.values()), default=0)
    _check_end(path, _LENGTH.size + length + last, size)
    return tensors


def _check_end(path: Path, end: int, size: int) -> None:
    if end > size:
        raise ModelUnusable(f"{path} is cut off: {size} bytes, of which {end} are told of")


def _check_last_layer(path: Path, part: str, names: Iterable[str]) -> None:
    if not any(part in name for name in names):
        raise ModelUnusable(f"{path} has no tensor of its last layer, {part}")


def _is_filled(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0
