"""The prefix cache: full pages of earlier sequences, found by the tokens that they hold.

Who asks for pages gives a chain of digests and the tokens themselves: a digest finds a page, the
tokens confirm it. Where a prompt leaves what is known in the middle of a page, that page is copied,
and the prompt goes on from there. Pages that nobody holds stay until their memory is wanted; then
those that were used least lately go, and none before what continues it
(`PageAllocator.least_lately_used`).
"""

import enum
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from engine.kv.blocks import PageAllocator
from engine.kv.outline import Use, outline
from engine.kv.pagehash import PageChain
from engine.kv.purges import Scope, Tags, merged
from engine.kv.tree import KnownPage, PageTree
from engine.process.protocol import Outlined

_MAX_LOOKED_AT = 64
"""Of the pages that continue another, so many are asked how far they go along."""


class Publication(enum.Enum):
    """What became of a page that was to be published."""

    PUBLISHED = "published"
    KNOWN = "known"
    """Another page with the same tokens is there; this one stays its sequence's own."""
    ORPHANED = "orphaned"
    """The page before it is not there, so nobody could find it."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The first `num_tokens` tokens of a page, at least one."""

    page: int
    num_tokens: int


class Prefix(Protocol):
    """What the scheduler asks."""

    def find(self, chain: PageChain, token_ids: Sequence[int], *, max_pages: int) -> list[int]:
        """The pages that hold the beginning of `token_ids`, in order, at most `max_pages`."""
        ...

    def part(
        self, chain: PageChain, token_ids: Sequence[int], index: int, *, max_tokens: int
    ) -> Part | None:
        """Where page `index` of a sequence is not found, and those before it are: what holds the
        most of its beginning, at most `max_tokens`, to be copied at once. A token's keys and values
        depend on it and those before it: the copy is what the sequence would have computed."""
        ...

    def reserve(self, owner: int, num_pages: int) -> bool:
        """`PageAllocator.grow`, which may take memory from pages that nobody holds."""
        ...

    def unpin(self) -> None:
        """Pinned pages may go from now on as others do."""
        ...


class NoPrefix:
    """Nothing is kept; see `Prefix`."""

    def __init__(self, pages: PageAllocator) -> None:
        self._pages = pages

    def find(self, chain: PageChain, token_ids: Sequence[int], *, max_pages: int) -> list[int]:
        return []

    def part(
        self, chain: PageChain, token_ids: Sequence[int], index: int, *, max_tokens: int
    ) -> Part | None:
        return None

    def reserve(self, owner: int, num_pages: int) -> bool:
        return self._pages.grow(owner, num_pages)

    def unpin(self) -> None:
        """There is nothing to unpin."""


class PrefixCache:
    """See `Prefix`. Publishes, pins and drops pages of an allocator."""

    def __init__(
        self,
        pages: PageAllocator,
        *,
        page_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds, for `outline` alone."""
        self._pages = pages
        self._page_tokens = page_tokens
        self._clock = clock
        self._tree = PageTree()
        self._by_page: dict[int, KnownPage] = {}
        self._pinned: set[int] = set()

    @property
    def num_pages(self) -> int:
        """Pages that can be found."""
        return len(self._tree)

    @property
    def num_pinned(self) -> int:
        return len(self._pinned)

    def find(self, chain: PageChain, token_ids: Sequence[int], *, max_pages: int) -> list[int]:
        found: list[int] = []
        while len(found) < max_pages:
            known = self.known(chain, token_ids, len(found))
            if known is None:
                break
            found.append(known.place)
        return found

    def part(
        self, chain: PageChain, token_ids: Sequence[int], index: int, *, max_tokens: int
    ) -> Part | None:
        first = index * self._page_tokens
        wanted = token_ids[first : first + max_tokens]
        beside = self._tree.following(chain.parent(index, token_ids))
        parts = (
            Part(page=known.place, num_tokens=_num_alike(known.token_ids, wanted))
            for known in itertools.islice(beside, _MAX_LOOKED_AT)
        )
        best = max(parts, key=lambda part: part.num_tokens, default=None)
        return best if best is not None and best.num_tokens else None

    def known(self, chain: PageChain, token_ids: Sequence[int], index: int) -> KnownPage | None:
        """Page `index` of the sequence, if it can be found."""
        first = index * self._page_tokens
        page = token_ids[first : first + self._page_tokens]
        return self._tree.get(chain.page(index, token_ids), page)

    def reserve(self, owner: int, num_pages: int) -> bool:
        missing = num_pages - len(self._pages.table(owner)) - self._pages.num_free
        if missing > self._pages.num_idle:
            return False
        for _ in range(missing):
            page = self._pages.least_lately_used()
            assert page is not None
            self._drop(self._by_page[page])
        return self._pages.grow(owner, num_pages)

    def publish(
        self,
        chain: PageChain,
        token_ids: Sequence[int],
        index: int,
        *,
        page: int,
        tags: Tags,
    ) -> Publication:
        """Page `index` of a sequence, which is full and final, can be found from now on."""
        parent = chain.parent(index, token_ids)
        if index and parent not in self._tree:
            return Publication.ORPHANED
        digest = chain.page(index, token_ids)
        if digest in self._tree:
            return Publication.KNOWN
        first = index * self._page_tokens
        now_s = self._clock()
        known = KnownPage(
            digest=digest,
            parent=parent,
            token_ids=tuple(token_ids[first : first + self._page_tokens]),
            place=page,
            tags=merged(frozenset(), tags),
            isolation=chain.isolation,
            made_s=now_s,
            used_s=now_s,
        )
        self._tree.add(known)
        self._by_page[page] = known
        self._pages.publish(page)
        return Publication.PUBLISHED

    def tag(
        self, chain: PageChain, token_ids: Sequence[int], index: int, tags: Tags
    ) -> KnownPage | None:
        """A request with these tags uses page `index`; the page, if it can be found."""
        known = self.known(chain, token_ids, index)
        if known is not None:
            known.tags = merged(known.tags, tags)
            known.used_s = self._clock()
        return known

    def covered(self, scope: Scope) -> list[KnownPage]:
        """What a purge of `scope` would drop."""
        return self._tree.covered(scope)

    def purge(self, scope: Scope) -> list[KnownPage]:
        """Drop what is covered: it cannot be found any more, and is free when nobody holds it."""
        dropped = self.covered(scope)
        for known in dropped:
            self._unpin(known.place)
            self._drop(known)
        return dropped

    def pin(self, page: int) -> None:
        """A published page stays; a no-op for a pinned one, and when half of all pages are."""
        if page not in self._pinned and 2 * len(self._pinned) < self._pages.num_pages - 1:
            self._pinned.add(page)
            self._pages.share(_pin_owner(page), [page])

    def unpin(self) -> None:
        for page in list(self._pinned):
            self._unpin(page)

    def outline(self, *, max_nodes: int) -> Outlined:
        """What can be found, by who uses it. Looks at each page."""
        return outline(self._tree, self._use, now_s=self._clock(), max_nodes=max_nodes)

    def check_integrity(self) -> None:
        """Each known page is published, and the other way round."""
        self._pages.check_integrity()
        assert {known.place for known in self._tree} == set(self._by_page)
        assert set(self._by_page) == self._pages.published()
        assert self._pinned <= set(self._by_page)

    def _use(self, known: KnownPage) -> Use:
        is_pinned = known.place in self._pinned
        return Use(refs=self._pages.refs(known.place) - is_pinned, is_pinned=is_pinned)

    def _unpin(self, page: int) -> None:
        if page in self._pinned:
            self._pinned.remove(page)
            self._pages.release(_pin_owner(page))

    def _drop(self, known: KnownPage) -> None:
        self._tree.remove(known)
        del self._by_page[known.place]
        self._pages.withdraw(known.place)


def _num_alike(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens before they differ, or one of them ends."""
    places = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in places if a != b), min(len(first), len(second)))


def _pin_owner(page: int) -> int:
    """A holder that is no sequence: their numbers begin at 0."""
    return -1 - page
