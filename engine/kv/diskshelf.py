"""Published pages on disk: written behind the steps, brought back before a sequence is admitted."""

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import msgspec
import torch

from engine.kv.blocks import PageAllocator
from engine.kv.disk import PageFile
from engine.kv.pagehash import PageChain
from engine.kv.prefix import PrefixCache, Publication
from engine.kv.purges import Scope, merged
from engine.kv.tree import KnownPage, PageTree
from engine.process.protocol import Moment

_MAX_WRITES = 8
"""Pages that wait to be written, each copied. What comes while they do is offered again when it is
used again."""

log = logging.getLogger("engine.kv.shelf")


class DiskShelf:
    """See `engine.kv.shelf.Shelf`. A disk that fails ends the writing; what was read is checked, so
    the worst that comes of it is that pages are computed again.

    What purges go by are the tags in memory, which are those of all requests at once. The file has
    them a moment later: a process that is killed within it leaves a page that a purge by the newest
    tag does not find after the restart, but one by its older tags does.
    """

    def __init__(
        self,
        file: PageFile,
        *,
        max_bytes: int,
        cache: PrefixCache,
        pages: PageAllocator,
        storage: torch.Tensor,
    ) -> None:
        """`storage` uint8 [num_pages, page_bytes]: the pool's pages. Raises OSError."""
        self._file = file
        self._cache = cache
        self._pages = pages
        self._storage = storage
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pages")
        # Jobs are done in the order in which they were given. What they concern is in the tree, and
        # stays there until they are done.
        self._writes: dict[bytes, Future[None]] = {}
        self._retags: dict[bytes, Future[None]] = {}
        self._untold: set[bytes] = set()
        """Pages whose tags no job brings to the file yet."""
        self._num_slots = max_bytes // file.slot_bytes
        self._is_broken = False
        # No sequence, and no pin: those have -1 … -num_pages.
        self._owner = -1 - pages.num_pages
        self._tree = _found(file, self._num_slots)
        taken = {page.place for page in self._tree}
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
        kept = self._tree.get(page.digest, page.token_ids)
        if kept is None:
            self._begin(page)
            return
        self._tree.use(kept)
        tags = merged(kept.tags, page.tags)
        if tags != kept.tags:
            kept.tags = tags
            self._untold.add(kept.digest)
            self._tell()

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

    def purge(
        self, scope: Scope, moment: Moment | None, *, also: Collection[bytes] = ()
    ) -> list[KnownPage]:
        self._finish()
        # What a failed disk has and has not, nobody knows.
        is_all = scope.everything or self._is_broken
        dropped = list(self._tree) if is_all else self._tree.covered(scope, also=also)
        for page in dropped:
            self._remove(page)
        try:
            if is_all:
                self._file.clear(moment)
            else:
                self._file.erase([page.place for page in dropped], moment)
        except OSError as error:
            self._break(error)
        return dropped

    def covered(self, scope: Scope) -> list[KnownPage]:
        return self._tree.covered(scope)

    def check_integrity(self) -> None:
        """Each slot is one page's, or free; jobs concern pages that have a slot."""
        taken = [page.place for page in self._tree]
        assert sorted([*taken, *self._free]) == list(range(self._num_slots))
        busy = self._writes.keys() | self._retags.keys() | self._untold
        assert all(digest in self._tree for digest in busy)

    def _begin(self, page: KnownPage) -> None:
        if self._is_broken or len(self._writes) >= _MAX_WRITES:
            return
        slot = self._slot()
        if slot is None:
            return
        kept = msgspec.structs.replace(page, place=slot)
        self._tree.add(kept)
        contents = self._storage[page.place].cpu().numpy().tobytes()
        job = self._writer.submit(self._file.write, msgspec.structs.replace(kept), contents)
        self._writes[kept.digest] = job

    def _slot(self) -> int | None:
        """A free one, or that of the page that was used least lately and that none continues."""
        if not self._free:
            oldest = next(filter(self._may_go, self._tree), None)
            if oldest is None:
                return None
            self._remove(oldest)
        return self._free.pop()

    def _may_go(self, page: KnownPage) -> bool:
        return not (self._is_busy(page) or self._tree.is_continued(page))

    def _is_busy(self, page: KnownPage) -> bool:
        """What lies in its slot is about to change."""
        return page.digest in self._writes or page.digest in self._retags

    def _remove(self, page: KnownPage) -> None:
        self._tree.remove(page)
        self._free.append(page.place)
        self._untold.discard(page.digest)

    def _bring(self, chain: PageChain, token_ids: Sequence[int], index: int) -> bool:
        """Page `index` into the pool, and published. False where that cannot be."""
        first = index * self._file.page_tokens
        digest = chain.page(index, token_ids)
        kept = self._tree.get(digest, token_ids[first : first + self._file.page_tokens])
        if kept is None or self._is_busy(kept) or not self._cache.reserve(self._owner, index + 1):
            return False
        contents = self._read(kept)
        if contents is None:
            return False
        page = self._pages.table(self._owner)[index]
        self._storage[page].copy_(torch.frombuffer(bytearray(contents), dtype=torch.uint8))
        self._pages.fill(page)
        done = self._cache.publish(chain, token_ids, index, page=page, tags=kept.tags)
        return done is Publication.PUBLISHED

    def _read(self, page: KnownPage) -> bytes | None:
        try:
            contents = self._file.read(page)
            if contents is None:
                log.warning("a page on disk is damaged: it is computed again")
                self._remove(page)
                # Its record may be whole, and would come back after a purge and a restart.
                self._file.blank(page.place)
        except OSError as error:
            self._break(error)
            return None
        return contents

    def _tell(self) -> None:
        """Have the file take down tags; those of one page once at a time."""
        for digest in [digest for digest in self._untold if digest not in self._retags]:
            self._untold.remove(digest)
            page = msgspec.structs.replace(self._tree.page(digest))
            self._retags[digest] = self._writer.submit(self._file.retag, page)

    def _settle(self) -> None:
        """Look at what the writer has done."""
        for digest in _done(self._writes):
            if not self._succeeded(self._writes.pop(digest)):
                self._remove(self._tree.page(digest))
        for digest in _done(self._retags):
            self._succeeded(self._retags.pop(digest))
        self._tell()

    def _succeeded(self, job: Future[None]) -> bool:
        try:
            job.result()
        except OSError as error:
            self._break(error)
            return False
        return True

    def _finish(self) -> None:
        """Wait for the writer."""
        while self._writes or self._retags:
            wait([*self._writes.values(), *self._retags.values()])
            self._settle()

    def _break(self, error: OSError) -> None:
        if not self._is_broken:
            log.error("pages are not written to disk any more: %s", error)
        self._is_broken = True


def _found(file: PageFile, num_slots: int) -> PageTree:
    """What lies in so many slots, once; nothing else stays in the file, where no purge would see
    it."""
    file.keep(num_slots)
    tree = PageTree()
    for page in file.pages():
        if page.digest in tree:
            file.blank(page.place)
        else:
            tree.add(page)
    return tree


def _done(jobs: dict[bytes, Future[None]]) -> list[bytes]:
    return [digest for digest, job in jobs.items() if job.done()]
