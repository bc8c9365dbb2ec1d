"""Which files a model is spread over. Reads no tensor."""

import re
from pathlib import Path

import msgspec

from engine.errors import ModelUnusable

_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"
_GGUF_PART = re.compile(r"(.*-)(\d{5})(-of-(\d{5})\.gguf)")


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def gguf_parts(path: Path) -> tuple[Path, ...]:
    """`X-00001-of-00003.gguf`, or any of its siblings: all of them, in order. Any other path
    alone. Files need not be there."""
    match = _GGUF_PART.fullmatch(path.name)
    if match is None:
        return (path,)
    begin, _, end, count = match.groups()
    return tuple(path.with_name(f"{begin}{part:05}{end}") for part in range(1, int(count) + 1))


def safetensors_files(folder: Path) -> tuple[Path, ...]:
    """Those of the index where there is one. Raises ModelUnusable when there are none, or some
    are missing."""
    index, whole = folder / _INDEX, folder / _WHOLE
    if index.is_file():
        paths = tuple(folder / name for name in sorted(set(_shards(index))))
    elif whole.is_file():
        paths = (whole,)
    else:
        paths = tuple(sorted(folder.glob("*.safetensors")))
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        raise ModelUnusable(f"{folder} lacks {', '.join(missing) or 'safetensors files'}")
    return paths


def _shards(index: Path) -> list[str]:
    try:
        return list(msgspec.json.decode(index.read_bytes(), type=_Index).weight_map.values())
    except msgspec.MsgspecError as error:
        raise ModelUnusable(f"{index} cannot be read: {error}") from error
