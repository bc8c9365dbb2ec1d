"""Published pages on disk: written behind the steps, brought back before a sequence is admitted."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

import torch

from engine.kv.blocks import PageAllocator
from engine.kv.disk import PageFile
from engine.kv.pagehash import PageChain
from engine.kv.prefix import PrefixCache, Publication
from engine.kv.purges import Scope
from engine.kv.tree import KnownPage, PageTree
from engine.process.protocol import Moment

_MAX_PENDING = 8
"""Pages that wait to be written, each copied. What comes while they do is offered again when it is
used again."""

log = logging.getLogger("engine.kv.shelf")


class Shelf(Protocol):
    """Where published pages also go."""

    @property
    def moment(self) -> Moment | None:
        """The last purge that what lies there has seen."""
        ...

    @property
    def num_pages(self) -> int:
        """Pages that lie there."""
        ...

    def has_arrived(self) -> bool:
        """What lies there can be used from now on, and could not when this was last asked."""
        ...

    def offer(self, page: KnownPage) -> None:
        """A page was published or used; keep it, with the tags it has now."""
        ...

    def restore(self, chain: PageChain, token_ids: Sequence[int], *, max_pages: int) -> int:
        """Publish again what is found of a sequence's beginning; the number of pages."""
        ...

    def purge(self, scope: Scope, moment: Moment | None) -> list[KnownPage]:
        """Erase what a purge covers. When it returns no restart brings it back."""
        ...

    def covered(self, scope: Scope) -> list[KnownPage]:
        """What a purge would erase."""
        ...


class NoShelf:
    """Nothing lies anywhere; see `Shelf`."""

    moment: Moment | None = None
    num_pages = 0

    def has_arrived(self) -> bool:
        return False

    def offer(self, page: KnownPage) -> None: ...

    def restore(self, chain: PageChain, token_ids: Sequence[int], *, max_pages: int) -> int:
        return 0

    def purge(self, scope: Scope, moment: Moment | None) -> list[KnownPage]:
        return []

    def covered(self, scope: Scope) -> list[KnownPage]:
        return []


class DiskShelf:
    """See `Shelf`. A disk that fails ends the writing; what was read is checked, so the worst that
    comes of it is that pages are computed again."""

    def __init__(
        self,
        file: PageFile,
        *,
        max_bytes: int,
        cache: PrefixCache,
        pages: PageAllocator,
        storage: torch.Tensor,
    ) -> None:
        """`storage` uint8 [num_pages, page_bytes]: the pool's pages."""
        self._file = file
        self._cache = cache
        self._pages = pages
        self._storage = storage
        self._tree = PageTree()
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
        self._pending: dict[bytes, Future[KnownPage]] = {}
        self._num_slots = max_bytes // file.slot_bytes
        self._is_broken = False
        # No sequence, and no pin: those have -1 … -num_pages.
        self._owner = -1 - pages.num_pages
        taken = set()
        for page in file.pages():
            if page.digest not in self._tree and page.place < self._num_slots:
                self._tree.add(page)
                taken.add(page.place)
        self._free = [slot for slot in reversed(range(self._num_slots)) if slot not in taken]

    @property
    def moment(self) -> Moment | None:
        return self._file.moment

    @property
    def num_pages(self) -> int:
        return len(self._tree)

    def has_arrived(self) -> bool:
        return False

    def offer(self, page: KnownPage) -> None:
        self._settle()
        if self._is_broken or page.digest in self._pending or len(self._pending) >= _MAX_PENDING:
            return
        kept = self._tree.get(page.digest, page.token_ids)
        if kept is None:
            self._begin(page)
        elif kept.tags != page.tags:
            kept.tags = page.tags
            self._pending[page.digest] = self._writer.submit(self._retag, kept)
        else:
            self._tree.use(kept)

    def restore(self, chain: PageChain, token_ids: Sequence[int], *, max_pages: int) -> int:
        self._settle()
        held = self._cache.find(chain, token_ids, max_pages=max_pages)
        restored = 0
        self._pages.share(self._owner, held)
        try:
            for index in range(len(held), max_pages):
                if not self._bring(chain, token_ids, index):
                    break
                restored += 1
        finally:
            self._pages.release(self._owner)
        return restored

    def purge(self, scope: Scope, moment: Moment | None) -> list[KnownPage]:
        self._finish()
        dropped = self._tree.covered(scope)
        for page in dropped:
            self._tree.remove(page)
            self._free.append(page.place)
        try:
            if len(self._tree):
                self._file.erase([page.place for page in dropped], moment)
            else:
                self._file.clear(moment)
        except OSError as error:
            self._break(error)
        return dropped

    def covered(self, scope: Scope) -> list[KnownPage]:
        self._finish()
        return self._tree.covered(scope)

    def _begin(self, page: KnownPage) -> None:
        slot = self._slot()
        if slot is None:
            return
        contents = self._storage[page.place].cpu().numpy().tobytes()
        kept = KnownPage(
            digest=page.digest,
            parent=page.parent,
            token_ids=page.token_ids,
            place=slot,
            tags=page.tags,
        )
        self._pending[page.digest] = self._writer.submit(self._write, kept, contents)

    def _slot(self) -> int | None:
        """A free one, or that of the page that was used least lately and that none continues."""
        if self._free:
            return self._free.pop()
        continued = {page.parent for page in self._tree}
        oldest = next((page for page in self._tree if page.digest not in continued), None)
        if oldest is None:
            return None
        self._tree.remove(oldest)
        return oldest.place

    def _write(self, page: KnownPage, contents: bytes) -> KnownPage:
        self._file.write(page, page.place, contents)
        return page

    def _retag(self, page: KnownPage) -> KnownPage:
        self._file.retag(page, page.place)
        return page

    def _bring(self, chain: PageChain, token_ids: Sequence[int], index: int) -> bool:
        """Page `index` into the pool, and published. False where that cannot be."""
        first = index * self._file.page_tokens
        digest = chain.page(index, token_ids)
        kept = self._tree.get(digest, token_ids[first : first + self._file.page_tokens])
        if kept is None or not self._cache.reserve(self._owner, index + 1):
            return False
        contents = self._file.read(kept.place)
        if contents is None:
            log.warning("a page on disk is damaged: it is computed again")
            self._tree.remove(kept)
            self._free.append(kept.place)
            return False
        page = self._pages.table(self._owner)[index]
        self._storage[page].copy_(torch.frombuffer(bytearray(contents), dtype=torch.uint8))
        self._pages.fill(page)
        done = self._cache.publish(chain, token_ids, index, page=page, tags=kept.tags)
        return done is Publication.PUBLISHED

    def _settle(self) -> None:
        """What the writer has done is there from now on."""
        for digest in [digest for digest, job in self._pending.items() if job.done()]:
            try:
                page = self._pending.pop(digest).result()
            except OSError as error:
                self._break(error)
                continue
            if digest in self._tree:
                self._tree.use(page)
            else:
                self._tree.add(page)

    def _finish(self) -> None:
        """Wait for the writer."""
        wait(self._pending.values())
        self._settle()

    def _break(self, error: OSError) -> None:
        if not self._is_broken:
            log.error("pages are not written to disk any more: %s", error)
        self._is_broken = True
