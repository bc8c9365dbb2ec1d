"""Who holds which page. Plain Python, no tensors.

    FREE ── grow ──> WRITING ── fill ──> FULL ── publish ──> PUBLISHED
      ^                 │                 │                      │
      └──── the last reference goes ──────┘        withdraw, and nobody holds it

A page that is written belongs to one sequence. A full one may be held by several, each with a
reference. A published one can be found by its tokens (`engine.kv.prefix`), and stays when nobody
holds it any more: idle, until its memory is wanted.
"""

import enum
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from engine.errors import EngineError


class PageState(enum.Enum):
    """See the picture above."""

    FREE = "free"
    WRITING = "writing"
    FULL = "full"
    PUBLISHED = "published"


class PageAllocator:
    """Pages 0 … num_pages-1, their states and their holders."""

    def __init__(self, num_pages: int) -> None:
        self._num_pages = num_pages
        # Last freed, first used: its lines are still in the CPU's cache.
        self._free = list(range(num_pages - 1, -1, -1))
        self._states = [PageState.FREE] * num_pages
        self._refs = [0] * num_pages
        self._tables: dict[int, list[int]] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def num_pages(self) -> int:
        return self._num_pages

    @property
    def num_free(self) -> int:
        """Pages that hold nothing."""
        return len(self._free)

    @property
    def num_idle(self) -> int:
        """Published pages that nobody holds."""
        return len(self._idle)

    @property
    def num_available(self) -> int:
        """Free, or free as soon as their memory is wanted."""
        return len(self._free) + len(self._idle)

    def table(self, owner: int) -> list[int]:
        """The owner's pages in token order; empty for a stranger. Not to be modified."""
        return self._tables.get(owner, [])

    def state(self, page: int) -> PageState:
        return self._states[page]

    def refs(self, page: int) -> int:
        """Its holders."""
        return self._refs[page]

    def published(self) -> set[int]:
        """All pages of that state."""
        return {n for n, state in enumerate(self._states) if state is PageState.PUBLISHED}

    def is_idle(self, page: int) -> bool:
        return page in self._idle

    def least_lately_used(self) -> int | None:
        """The idle page to give up first; None where there is none. Pages are released from the
        end, so one that others continue comes after them."""
        return next(iter(self._idle), None)

    def grow(self, owner: int, num_pages: int) -> bool:
        """Bring the owner to `num_pages` pages. False, and nothing done, when too few are free.
        A no-op when it has as many."""
        missing = num_pages - len(self.table(owner))
        if missing > len(self._free):
            return False
        if missing > 0:
            pages = [self._free.pop() for _ in range(missing)]
            self._tables.setdefault(owner, []).extend(pages)
            for page in pages:
                self._states[page] = PageState.WRITING
                self._refs[page] = 1
        return True

    def share(self, owner: int, pages: Iterable[int]) -> None:
        """Append full pages of others to the owner's table."""
        table = self._tables.setdefault(owner, [])
        for page in pages:
            assert self._states[page] in (PageState.FULL, PageState.PUBLISHED), page
            self._refs[page] += 1
            self._idle.pop(page, None)
            table.append(page)

    def fill(self, page: int) -> None:
        """The step that wrote the page's last token has finished. A no-op for a full page."""
        if self._states[page] is PageState.WRITING:
            self._states[page] = PageState.FULL

    def publish(self, page: int) -> None:
        """A full page can be found from now on."""
        assert self._states[page] is PageState.FULL, page
        self._states[page] = PageState.PUBLISHED

    def withdraw(self, page: int) -> None:
        """A published page cannot be found any more; free where nobody holds it."""
        assert self._states[page] is PageState.PUBLISHED, page
        self._states[page] = PageState.FULL
        if page in self._idle:
            del self._idle[page]
            self._set_free(page)

    def release(self, owner: int) -> None:
        """Give up all pages of the owner. A no-op for a stranger."""
        self._let_go(self._tables.pop(owner, []))

    def cut(self, owner: int, first: int, num_pages: int) -> None:
        """Give up so many pages from the owner's table; those behind them move up."""
        table = self.table(owner)
        self._let_go(table[first : first + num_pages])
        del table[first : first + num_pages]

    def check_integrity(self) -> None:
        """Free + held + idle = all, and references are as many as holders. Raises PagesCorrupt."""
        held = Counter(page for pages in self._tables.values() for page in pages)
        if sorted([*self._free, *held, *self._idle]) != list(range(self._num_pages)):
            raise PagesCorrupt(
                f"{len(self._free)} free, {len(held)} held and {len(self._idle)} idle pages are "
                f"not {self._num_pages}"
            )
        for page, state in enumerate(self._states):
            if self._refs[page] != held[page]:
                raise PagesCorrupt(f"page {page}: {self._refs[page]} references, {held[page]} held")
            if not self._is_possible(page, state, held[page]):
                raise PagesCorrupt(f"page {page} is {state.value} with {held[page]} holders")

    def _is_possible(self, page: int, state: PageState, num_holders: int) -> bool:
        match state:
            case PageState.FREE:
                return num_holders == 0 and page not in self._idle
            case PageState.WRITING:
                return num_holders == 1
            case PageState.FULL:
                return num_holders >= 1
            case PageState.PUBLISHED:
                return (page in self._idle) == (num_holders == 0)

    def _let_go(self, pages: Sequence[int]) -> None:
        for page in reversed(pages):
            self._refs[page] -= 1
            if self._refs[page]:
                continue
            if self._states[page] is PageState.PUBLISHED:
                self._idle[page] = None
            else:
                self._set_free(page)

    def _set_free(self, page: int) -> None:
        self._states[page] = PageState.FREE
        self._free.append(page)


class PagesCorrupt(EngineError):
    """The bookkeeping of pages contradicts itself: a bug."""
