"""Large blocks of memory on huge pages, where the system has them.

Weights and KV pages are read from end to end at every step. With pages of 4 KiB a core spends half
of that time on address translation (measured: 16 against 31 GB/s).
"""

import errno
import mmap

import torch

_HUGE_PAGE_BYTES = 2 * 2**20
_LINE_BYTES = 64
_ARENA_BLOCK_BYTES = 64 * 2**20
_SHORTAGES = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)


def large_block(num_bytes: int) -> torch.Tensor:
    """uint8 [num_bytes], zero, on a huge page's border. Physical memory is taken when it is first
    touched, and given back with the last view."""
    size = num_bytes + _HUGE_PAGE_BYTES
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Private: shared memory, Python's default, gets no huge pages.
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(mmap.MADV_HUGEPAGE)
    else:
        block = mmap.mmap(-1, size)
    whole = torch.frombuffer(block, dtype=torch.uint8)
    start = -whole.data_ptr() % _HUGE_PAGE_BYTES
    return whole[start : start + num_bytes]


def is_shortage(error: Exception) -> bool:
    """There was too little memory, or another thing that other processes may give back."""
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)  # torch's CPU


class Arena:
    """Hands out memory that is never given back piece by piece: many matrices share huge pages."""

    def __init__(self) -> None:
        self._rest = torch.empty(0, dtype=torch.uint8)

    def take(self, num_bytes: int) -> torch.Tensor:
        """uint8 [num_bytes], zero, on a cache line."""
        size = -(-num_bytes // _LINE_BYTES) * _LINE_BYTES
        if size > len(self._rest):
            self._rest = large_block(max(size, _ARENA_BLOCK_BYTES))
        taken, self._rest = self._rest[:num_bytes], self._rest[size:]
        return taken
