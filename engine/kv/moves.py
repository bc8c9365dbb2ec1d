"""Pages that are copied before a step computes, and who copies them."""

from collections.abc import Sequence

import msgspec
import torch

from engine.device import host_block


class SwapOut(msgspec.Struct, frozen=True, kw_only=True):
    page: int
    slot: int


class SwapIn(msgspec.Struct, frozen=True, kw_only=True):
    slot: int
    page: int


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    source: int
    target: int


Move = SwapOut | SwapIn | Copy


class PageMover:
    """Copies whole pages: between each other, and to and from the memory for swapping."""

    def __init__(self, storage: torch.Tensor, *, num_slots: int) -> None:
        """`storage` uint8 [num_pages, page_bytes]. Memory for slots is taken when it is used."""
        self._storage = storage
        page_bytes = storage.shape[1]
        swapped = host_block(storage.device, num_slots * page_bytes)
        self._swapped = swapped.view(num_slots, page_bytes)

    @torch.inference_mode()
    def run(self, moves: Sequence[Move]) -> None:
        """In their order: a page may be moved out and then be the target of another."""
        for move in moves:
            match move:
                case SwapOut(page=page, slot=slot):
                    self._swapped[slot].copy_(self._storage[page])
                case SwapIn(slot=slot, page=page):
                    self._storage[page].copy_(self._swapped[slot])
                case Copy(source=source, target=target):
                    self._storage[target].copy_(self._storage[source])
