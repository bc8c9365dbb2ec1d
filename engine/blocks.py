"""Who owns which page. Plain Python, no tensors."""

from engine.errors import EngineError


class PageAllocator:
    """Pages 0 … num_pages-1, each free or owned by one sequence."""

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        # Last freed, first used: its lines are still in the CPU's cache.
        self._free = list(range(num_pages - 1, -1, -1))
        self._owned: dict[int, list[int]] = {}

    @property
    def num_pages(self) -> int:
        return self._num_pages

    @property
    def num_free(self) -> int:
        return len(self._free)

    def table(self, owner: int) -> list[int]:
        """The owner's pages in token order; empty for a stranger. Not to be modified."""
        return self._owned.get(owner, [])

    def grow(self, owner: int, num_pages: int) -> bool:
        """Bring the owner to `num_pages` pages. False, and nothing done, when too few are free.
        A no-op when it has as many."""
        missing = num_pages - len(self.table(owner))
        if missing > len(self._free):
            return False
        if missing > 0:
            pages = self._owned.setdefault(owner, [])
            pages += [self._free.pop() for _ in range(missing)]
        return True

    def release(self, owner: int) -> None:
        """Free all pages of the owner. A no-op for a stranger."""
        self._free += reversed(self._owned.pop(owner, []))

    def check_integrity(self) -> None:
        """Each page is free or owned, once. Raises PagesCorrupt."""
        held = [page for pages in self._owned.values() for page in pages]
        if sorted([*self._free, *held]) != list(range(self._num_pages)):
            raise PagesCorrupt(
                f"{len(self._free)} free and {len(held)} owned pages are not {self._num_pages}"
            )


class PagesCorrupt(EngineError):
    """The bookkeeping of pages contradicts itself: a bug."""
