"""How a model is built, by the headers of its files: without torch, and without their tensors."""

import mmap
import struct
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


class _Tensor(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a safetensors header."""

    shape: tuple[int, ...]


def survey(path: Path, *, max_positions: int) -> Blueprint:
    """Of a GGUF file, or of a folder as transformers saves it; but for the numbers of a RoPE that
    a GGUF file has as a tensor. Raises ModelUnusable."""
    try:
        return _of_folder(path, max_positions) if path.is_dir() else _of_gguf(path, max_positions)
    except (OSError, ValueError, struct.error, msgspec.MsgspecError) as error:
        raise ModelUnusable(f"{path} cannot be read: {error}") from error


def _of_gguf(path: Path, max_positions: int) -> Blueprint:
    headers = [_header(part) for part in gguf_parts(path)]
    tensors = {name: place for header in headers for name, place in header.tensors.items()}
    if _EMBEDDING not in tensors:
        raise ModelUnusable(f"{path} has no tensor {_EMBEDDING}")
    return gguf_blueprint(
        headers[0],
        gguf_family(headers[0]),
        vocab_size=tensors[_EMBEDDING].shape[0],
        tied=_HEAD not in tensors,
        rope_divisors=None,
        max_positions=max_positions,
    )


def _header(path: Path) -> GGUFHeader:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return read_header(memoryview(mapped))


def _of_folder(path: Path, max_positions: int) -> Blueprint:
    raw = msgspec.json.decode((path / "config.json").read_bytes(), type=dict[str, Any])
    tensors = {name: one for file in safetensors_files(path) for name, one in _places(file).items()}
    embeddings = [one for name, one in tensors.items() if name.endswith(_FOLDER_EMBEDDING)]
    if not embeddings:
        raise ModelUnusable(f"{path} has no tensor {_FOLDER_EMBEDDING}")
    return folder_blueprint(
        raw,
        vocab_size=embeddings[0].shape[0],
        has_head=any(name.endswith(_FOLDER_HEAD) for name in tensors),
        max_positions=max_positions,
    )


def _places(path: Path) -> dict[str, _Tensor]:
    """A safetensors file begins with the length of its header, which is JSON."""
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
    header.pop("__metadata__", None)
    return {name: msgspec.json.decode(raw, type=_Tensor) for name, raw in header.items()}
