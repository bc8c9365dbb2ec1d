"""How a page of the KV cache is laid out. Plain arithmetic, no tensors.

A page holds `page_tokens` tokens of all layers, contiguously, so that to swap, store or checksum
it is one copy. Within a page, layer by layer:

    K [num_kv_heads, page_tokens, head_dim] | V the same
    and in INT8 modes | K scales fp16 [num_kv_heads * num_groups, page_tokens] | V scales the same

INT8 pages are tiled where sizes allow: see `engine.kv.vectors`, which alone knows the inner order.

Each part begins on a cache line. A page is sized by the heads that keys and values have, not by
the query heads that share them.
"""

import msgspec

from engine.config import KVDtype
from engine.shape import ModelShape

TILE_TOKENS = 16
"""Tokens whose keys lie together in tiled pages: the lanes of a 512-bit register."""
LANE_CODES = 4
"""Codes that one lane multiplies at a time."""
_ALIGNMENT_BYTES = 64
_SCALE_BYTES = 2
_GROUP_CHANNELS = 32
_LONG_HEAD = 128
_ELEMENT_BYTES: dict[KVDtype, int] = {"int8": 1, "int8-hq": 1, "bf16": 2, "fp32": 4}


class PageLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and offsets in bytes."""

    dtype: KVDtype
    page_tokens: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    windows: tuple[int | None, ...] = ()
    """For each layer how many tokens a query sees, itself included; empty, or None: all."""
    for_cpu: bool = True
    """Codes may be tiled as the CPU's kernels want them; a GPU reads a token's in one line."""

    @classmethod
    def of(
        cls, shape: ModelShape, *, dtype: KVDtype, page_tokens: int, for_cpu: bool = True
    ) -> "PageLayout":
        return cls(
            dtype=dtype,
            page_tokens=page_tokens,
            num_layers=shape.num_layers,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            windows=shape.windows,
            for_cpu=for_cpu,
        )

    @property
    def has_scales(self) -> bool:
        return self.dtype in ("int8", "int8-hq")

    @property
    def num_groups(self) -> int:
        """Parts of a vector, equally long, that have a scale each. Long heads need it: Gemma 3,
        head size 256, loses KL 5.3e-4 with one scale and 3.5e-4 with eight. One where the head
        size does not divide, and on GPUs."""
        long_on_cpu = self.head_dim > _LONG_HEAD and self.for_cpu
        grouped = self.dtype == "int8-hq" or (self.dtype == "int8" and long_on_cpu)
        divides = self.head_dim % _GROUP_CHANNELS == 0
        return self.head_dim // _GROUP_CHANNELS if grouped and divides else 1

    @property
    def tiled(self) -> bool:
        """Codes are ordered for kernels, not by token."""
        fits = self.page_tokens % TILE_TOKENS == self.head_dim % TILE_TOKENS == 0
        return self.has_scales and fits and self.for_cpu

    @property
    def element_bytes(self) -> int:
        return _ELEMENT_BYTES[self.dtype]

    @property
    def _vectors_bytes(self) -> int:
        elements = self.num_kv_heads * self.page_tokens * self.head_dim
        return _aligned(elements * self.element_bytes)

    @property
    def _scales_bytes(self) -> int:
        scales = self.num_kv_heads * self.num_groups * self.page_tokens if self.has_scales else 0
        return _aligned(scales * _SCALE_BYTES)

    @property
    def layer_bytes(self) -> int:
        return 2 * self._vectors_bytes + 2 * self._scales_bytes

    @property
    def page_bytes(self) -> int:
        return self.num_layers * self.layer_bytes

    @property
    def bytes_per_token(self) -> int:
        return self.page_bytes // self.page_tokens

    def window(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None

    def keys_at(self, layer: int) -> int:
        return layer * self.layer_bytes

    def values_at(self, layer: int) -> int:
        return self.keys_at(layer) + self._vectors_bytes

    def key_scales_at(self, layer: int) -> int:
        return self.values_at(layer) + self._vectors_bytes

    def value_scales_at(self, layer: int) -> int:
        return self.key_scales_at(layer) + self._scales_bytes

    def num_pages(self, num_tokens: int) -> int:
        """Pages that `num_tokens` tokens need."""
        return -(-num_tokens // self.page_tokens)


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
