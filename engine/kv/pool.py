"""The memory of the KV cache: one allocation, seen through views with real strides."""

from collections.abc import Callable
from functools import partial

import torch

from engine.device import CPU, block_on
from engine.kv.pages import PageLayout
from engine.kv.quant import KeyCentres, hadamard_matrix, quantise
from engine.kv.vectors import PagedVectors

_ELEMENT: dict[str, torch.dtype] = {
    "int8": torch.int8,
    "int8-hq": torch.int8,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
}


class PagePool:
    """All pages. Memory is touched, and so taken from the system, when a page is first used."""

    def __init__(
        self,
        layout: PageLayout,
        num_pages: int,
        *,
        key_centres: KeyCentres | None = None,
        device: torch.device = CPU,
        writer: "PageWriter | None" = None,
    ) -> None:
        """`key_centres` for int8 only. `writer` None: torch writes."""
        self.layout = layout
        self.writer = writer
        block = block_on(device, num_pages * layout.page_bytes)
        self.storage = block.view(num_pages, layout.page_bytes)
        rotation = hadamard_matrix(layout.head_dim).to(device) if layout.has_scales else None
        self.layers = [
            LayerPages(self, layer, rotation=rotation, centres=key_centres)
            for layer in range(layout.num_layers)
        ]

    def view(self, dtype: torch.dtype, offset_bytes: int, sizes: tuple[int, ...]) -> torch.Tensor:
        """One part of every page: [num_pages, *sizes], contiguous within a page."""
        flat = self.storage.view(dtype)
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.insert(0, strides[0] * size)
        # as_strided counts from the start of the memory, not of the view.
        offset = flat.storage_offset() + offset_bytes // dtype.itemsize
        return flat.as_strided((flat.shape[0], *sizes), (flat.stride(0), *strides), offset)


class LayerPages:
    """One layer's part of all pages, and how vectors are changed on their way in.

    keys, values   vectors of head_dim by page, head and place in the page; int8, bf16 or fp32
    window         tokens that a query of this layer sees, itself included; None: all
    *_scales       fp16 [num_pages, num_kv_heads * num_groups, page_tokens] with INT8, else None;
                   negative ones mark a sequence's first key (see `engine.kv.quant`)
    """

    def __init__(
        self,
        pool: PagePool,
        layer: int,
        *,
        rotation: torch.Tensor | None,
        centres: KeyCentres | None,
    ) -> None:
        layout = pool.layout
        element = _ELEMENT[layout.dtype]
        keys_view = partial(pool.view, element, layout.keys_at(layer))
        values_view = partial(pool.view, element, layout.values_at(layer))
        self.layout = layout
        self.window = layout.window(layer)
        self.keys = PagedVectors(layout, keys_view, keys=True)
        self.values = PagedVectors(layout, values_view, keys=False)
        self.key_scales: torch.Tensor | None = None
        self.value_scales: torch.Tensor | None = None
        if layout.has_scales:
            scales = (layout.num_kv_heads * layout.num_groups, layout.page_tokens)
            self.key_scales = pool.view(torch.half, layout.key_scales_at(layer), scales)
            self.value_scales = pool.view(torch.half, layout.value_scales_at(layer), scales)
        self._rotation = rotation
        self._writer = pool.writer
        # H (k - c) = H k - H c: the second part is a constant, float32 [num_kv_heads, head_dim].
        self.turned_centre: torch.Tensor | None = None
        # What is taken off a sequence's first key besides.
        self.first_offset: torch.Tensor | None = None
        if centres is not None and rotation is not None:
            usual, first = (c[layer].to(rotation.device) for c in (centres.usual, centres.first))
            self.turned_centre = usual @ rotation
            self.first_offset = (first - usual) @ rotation

    @property
    def turning(self) -> tuple[torch.Tensor, ...]:
        """What keys are multiplied by, and what is taken off them then; all may be missing."""
        parts = (self._rotation, self.turned_centre, self.first_offset)
        return tuple(part for part in parts if part is not None)

    def turn(self, heads: torch.Tensor) -> torch.Tensor:
        """Queries, or keys with their centre still in, as the pages hold keys: H x, float32
        [num_tokens, heads, head_dim]. The identity where pages are not quantised."""
        return heads if self._rotation is None else heads @ self._rotation

    @property
    def turns_values(self) -> bool:
        """Values, too, lie in the pages as H v; not on GPUs, whose kernels do not turn back."""
        return self._rotation is not None and self.layout.for_cpu

    def turn_back(self, attended: torch.Tensor) -> torch.Tensor:
        """Sums of the pages' values → of values as they were written: H is its own inverse. In any
        shape [..., head_dim]; the identity where values are not turned."""
        return self.turn(attended) if self.turns_values else attended

    def write(
        self,
        turned_keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor,
        begins: torch.Tensor | None = None,
    ) -> None:
        """Store keys (after RoPE and `turn`) and values, float32 [num_tokens, num_kv_heads,
        head_dim], at `slots` int64 [num_tokens]: page * page_tokens + place in the page. `begins`
        bool [num_tokens]: which are the first of their sequences; None: none."""
        if self._writer is not None:
            self._writer(self, turned_keys, values, slots, begins)
            return
        pages = slots.div(self.layout.page_tokens, rounding_mode="floor")
        places = slots.remainder(self.layout.page_tokens)
        if self.key_scales is None or self.value_scales is None:
            self.keys.put(pages, places, turned_keys.to(self.keys.dtype))
            self.values.put(pages, places, values.to(self.values.dtype))
            return
        if self.turns_values:
            values = self.turn(values)
        # Both at once: for a few tokens, the number of calls is what costs.
        vectors = torch.stack((self._centred(turned_keys, begins), values))
        rounded = quantise(vectors.view(*vectors.shape[:-1], self.layout.num_groups, -1))
        codes = rounded.codes.view(vectors.shape)
        self.keys.put(pages, places, codes[0])
        self.values.put(pages, places, codes[1])
        key_scales, value_scales = rounded.scales.flatten(2)
        self.key_scales[pages, :, places] = self._marked(key_scales, begins)
        self.value_scales[pages, :, places] = value_scales

    def _centred(self, keys: torch.Tensor, begins: torch.Tensor | None) -> torch.Tensor:
        if self.turned_centre is not None:
            keys = keys - self.turned_centre
        if self.first_offset is not None and begins is not None:
            keys = keys - self.first_offset * begins[:, None, None]
        return keys

    def _marked(self, scales: torch.Tensor, begins: torch.Tensor | None) -> torch.Tensor:
        if self.first_offset is None or begins is None:
            return scales
        return torch.where(begins[:, None], -scales, scales)


PageWriter = Callable[
    [LayerPages, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None], None
]
"""A kernel that does what `LayerPages.write` does, with the same arguments."""
