"""The header of a GGUF file: metadata, and where its tensors lie.

Read by ourselves, after ggml's `docs/gguf.md`, versions 2 and 3: the `gguf` package makes several
objects of each of the strings of a vocabulary, which takes seconds.
"""

import math
import struct
from typing import Any

import msgspec

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_FORMATS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_ALIGNMENT = 32
BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36),
}  # fmt: skip
"""By ggml type: how many numbers a block has, and how many bytes. Of all types that are read."""


class TensorPlace(msgspec.Struct, frozen=True, kw_only=True):
    """`shape` row-major, `kind` a ggml type, `offset` in bytes from the file's begin."""

    shape: tuple[int, ...]
    kind: int
    offset: int

    @property
    def end(self) -> int:
        """Where it ends, or may begin where the type is none of `BLOCKS`."""
        numbers, num_bytes = BLOCKS.get(self.kind, (1, 0))
        return self.offset + math.prod(self.shape) // numbers * num_bytes


class GGUFHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Arrays are lists."""

    fields: dict[str, Any]
    tensors: dict[str, TensorPlace]

    @property
    def architecture(self) -> str:
        """`llama`, `qwen2`, …"""
        return str(self.get("general.architecture"))

    def get(self, key: str, default: Any = None) -> Any:
        return self.fields.get(key, default)

    def of_architecture(self, key: str, default: Any = None) -> Any:
        """`get` with the architecture's prefix."""
        return self.get(f"{self.architecture}.{key}", default)


def read_header(data: memoryview) -> GGUFHeader:
    """`data` is the whole file, mapped. Raises ValueError for what is not GGUF, or is cut off."""
    try:
        return _read(_Cursor(data))
    except struct.error as error:
        raise ValueError(f"the header is cut off: {error}") from error


class _Cursor:
    """Reads on from where it stands."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def numbers(self, form: str, count: int = 1) -> tuple[Any, ...]:
        packed = struct.Struct(f"<{count}{form}")
        values = packed.unpack_from(self.data, self.at)
        self.at += packed.size
        return values

    def string(self) -> str:
        (size,) = self.numbers("Q")
        return str(self._bytes(size), "utf-8")

    def strings(self, count: int) -> list[str]:
        """As `string`, but for the many of a vocabulary."""
        data, at, texts = self.data, self.at, []
        length = struct.Struct("<Q").unpack_from
        for _ in range(count):
            begin = at + 8
            at = begin + length(data, at)[0]
            texts.append(str(data[begin:at], "utf-8"))
        self.at = at
        return texts

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.numbers(_format(kind))[0]
        (element,), (count,) = self.numbers("I"), self.numbers("Q")
        if element == _STRING:
            return self.strings(count)
        if element == _ARRAY:
            return [self.value(_ARRAY) for _ in range(count)]
        return list(self.numbers(_format(element), count))

    def _bytes(self, size: int) -> memoryview:
        self.at += size
        return self.data[self.at - size : self.at]


def _read(cursor: _Cursor) -> GGUFHeader:
    if bytes(cursor.data[:4]) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    cursor.at = 4
    (version,) = cursor.numbers("I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version} of the format, or another byte order, is not read")
    num_tensors, num_fields = cursor.numbers("Q", 2)
    fields = {}
    for _ in range(num_fields):
        key = cursor.string()
        fields[key] = cursor.value(cursor.numbers("I")[0])
    places = dict(_place(cursor) for _ in range(num_tensors))
    alignment = int(fields.get("general.alignment", _ALIGNMENT))
    start = -(-cursor.at // alignment) * alignment
    tensors = {
        name: msgspec.structs.replace(place, offset=start + place.offset)
        for name, place in places.items()
    }
    return GGUFHeader(fields=fields, tensors=tensors)


def _place(cursor: _Cursor) -> tuple[str, TensorPlace]:
    name = cursor.string()
    (num_dimensions,) = cursor.numbers("I")
    # The innermost dimension is written first.
    shape = cursor.numbers("Q", num_dimensions)[::-1]
    (kind,), (offset,) = cursor.numbers("I"), cursor.numbers("Q")
    return name, TensorPlace(shape=shape, kind=kind, offset=offset)


def _format(kind: int) -> str:
    try:
        return _FORMATS[kind]
    except KeyError:
        raise ValueError(f"a value of the unknown type {kind}") from None
