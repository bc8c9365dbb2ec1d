"""What the engine keeps of sequences: their published pages, in memory and on disk, and what
purges leave of them. Plain orders to the rooms below; the engine calls it between steps.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from engine.kv.blocks import PageAllocator, PageState
from engine.kv.pagehash import PageChain, root_digest
from engine.kv.prefix import PrefixCache, Publication
from engine.kv.purges import EVERYTHING, PurgeLog, Scope
from engine.kv.shelf import Shelf
from engine.kv.tree import KnownPage
from engine.process.protocol import Moment, Outlined
from engine.sequence import Sequence

_NOTHING = Scope()


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of pages."""

    cached: int = 0
    pinned: int = 0
    on_disk: int = 0
    restored: int = 0
    """From disk, since the start."""


class Archive(Protocol):
    """What the engine asks."""

    def chain(self, isolation: str) -> PageChain:
        """Of a sequence of those who share pages under this name."""
        ...

    def receive(self, sequences: Iterable[Sequence], moment: Moment | None) -> bool:
        """Sequences of a request that saw the store at `moment` (None: it does not say). False:
        everything that was kept is gone, and no sequence in flight may publish any more."""
        ...

    def prepare(self, sequence: Sequence) -> int:
        """It is about to be admitted: bring what lies on disk; the number of pages."""
        ...

    def file(self, sequence: Sequence) -> None:
        """A step has computed tokens of it: publish what is full, tag what it shares."""
        ...

    def purge(self, scope: Scope, moment: Moment | None, *, dry_run: bool) -> "PurgedPages":
        """Drop what is covered. What is in flight is the caller's."""
        ...

    def holdings(self) -> Holdings:
        """What is kept now."""
        ...

    def outline(self, *, max_nodes: int) -> Outlined:
        """The same as a tree; see `engine.kv.outline`."""
        ...


class PurgedPages(msgspec.Struct, frozen=True, kw_only=True):
    """`num_pages`: dropped, each counted once wherever it lay. `scope`: what nothing in flight may
    publish pages of any more; wider than asked for where purges were missed. `places`: the
    dropped pages of the pool, which sequences in flight may still hold."""

    num_pages: int
    scope: Scope
    places: frozenset[int]


class NoArchive:
    """Nothing is kept; see `Archive`."""

    def __init__(self, *, page_tokens: int) -> None:
        self._page_tokens = page_tokens

    def chain(self, isolation: str) -> PageChain:
        return PageChain(b"", page_tokens=self._page_tokens)

    def receive(self, sequences: Iterable[Sequence], moment: Moment | None) -> bool:
        return True

    def prepare(self, sequence: Sequence) -> int:
        return 0

    def file(self, sequence: Sequence) -> None: ...

    def purge(self, scope: Scope, moment: Moment | None, *, dry_run: bool) -> PurgedPages:
        return PurgedPages(num_pages=0, scope=scope, places=frozenset())

    def holdings(self) -> Holdings:
        return Holdings()

    def outline(self, *, max_nodes: int) -> Outlined:
        return Outlined(num_nodes=0, num_tokens=0, nodes=())


class PageArchive:
    """See `Archive`."""

    def __init__(
        self,
        cache: PrefixCache,
        pages: PageAllocator,
        *,
        shelf: Shelf,
        fingerprint: bytes,
        page_tokens: int,
    ) -> None:
        self._cache = cache
        self._pages = pages
        self._shelf = shelf
        self._fingerprint = fingerprint
        self._page_tokens = page_tokens
        self._log = PurgeLog(shelf.moment)
        self._num_restored = 0

    def chain(self, isolation: str) -> PageChain:
        root = root_digest(self._fingerprint, {"isolation": isolation})
        return PageChain(root, page_tokens=self._page_tokens, isolation=isolation)

    def receive(self, sequences: Iterable[Sequence], moment: Moment | None) -> bool:
        is_told = moment is None or self._hear(moment)
        for sequence in sequences:
            sequence.publishes = self._log.allows(sequence.tags, moment)
        return is_told

    def prepare(self, sequence: Sequence) -> int:
        # Until somebody has said how far purges have come, what lies on disk may be too old.
        if not self._log.is_confirmed:
            return 0
        max_pages = (len(sequence.token_ids) - 1) // self._page_tokens
        num_pages = self._shelf.restore(sequence.chain, sequence.token_ids, max_pages=max_pages)
        self._num_restored += num_pages
        return num_pages

    def file(self, sequence: Sequence) -> None:
        if not sequence.retention.shares:
            return
        table = self._pages.table(sequence.sequence_id)
        while sequence.num_filed < sequence.num_kv // self._page_tokens:
            self._file(sequence, sequence.num_filed, table[sequence.num_filed])
            sequence.num_filed += 1

    def purge(self, scope: Scope, moment: Moment | None, *, dry_run: bool) -> PurgedPages:
        if not dry_run and moment is not None and not self._log.note(scope, moment):
            scope = EVERYTHING
        if dry_run:
            dropped = [*self._cache.covered(scope), *self._shelf.covered(scope)]
            return _purged(dropped, scope, places=())
        in_memory = self._cache.purge(scope)
        also = {page.digest for page in in_memory}
        dropped = [*in_memory, *self._shelf.purge(scope, self._log.known, also=also)]
        return _purged(dropped, scope, places=(page.place for page in in_memory))

    def holdings(self) -> Holdings:
        return Holdings(
            cached=self._cache.num_pages,
            pinned=self._cache.num_pinned,
            on_disk=self._shelf.num_pages,
            restored=self._num_restored,
        )

    def outline(self, *, max_nodes: int) -> Outlined:
        return self._cache.outline(max_nodes=max_nodes)

    def _hear(self, moment: Moment) -> bool:
        if self._shelf.has_arrived():
            self._take_over()
        is_told = self._log.hear(moment)
        if not is_told:
            self._cache.purge(EVERYTHING)
            self._shelf.purge(EVERYTHING, moment)
        elif self._shelf.moment is None:
            # Before the first page lies there, so that none is ever taken for newer than it is.
            self._shelf.purge(_NOTHING, moment)
        return is_told

    def _take_over(self) -> None:
        """What another engine has left is of use when it has seen the very purges that were made
        known here."""
        left, known = self._shelf.moment, self._log.known
        if known is None:
            self._log = PurgeLog(left)
        elif left is not None and left != known:
            self._shelf.purge(EVERYTHING, known)

    def _file(self, sequence: Sequence, index: int, page: int) -> None:
        chain, token_ids, tags = sequence.chain, sequence.token_ids, sequence.tags
        if self._pages.state(page) is not PageState.PUBLISHED and sequence.publishes:
            done = self._cache.publish(chain, token_ids, index, page=page, tags=tags)
            sequence.publishes = done is not Publication.ORPHANED
        known = self._cache.tag(chain, token_ids, index, tags)
        if known is None:
            return
        if (index + 1) * self._page_tokens <= sequence.num_pinned:
            self._cache.pin(known.place)
        if self._log.is_confirmed:
            self._shelf.offer(known)


def _purged(dropped: Iterable[KnownPage], scope: Scope, *, places: Iterable[int]) -> PurgedPages:
    digests = {page.digest for page in dropped}
    return PurgedPages(num_pages=len(digests), scope=scope, places=frozenset(places))
