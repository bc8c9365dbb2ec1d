"""A shelf whose file another engine still has: that one is about to end, after a reload."""

import logging
from collections.abc import Callable, Collection, Sequence

from engine.kv.disk import FileBusy
from engine.kv.pagehash import PageChain
from engine.kv.purges import Scope
from engine.kv.shelf import NoShelf, Shelf
from engine.kv.tree import KnownPage
from engine.process.protocol import Moment

log = logging.getLogger("engine.kv.shelf")


class LateShelf:
    """See `engine.kv.shelf.Shelf`. Empty until the file is free, which is tried whenever somebody
    asks; then all that lies in the file is there at once."""

    def __init__(self, open_shelf: Callable[[], Shelf]) -> None:
        """`open_shelf` raises FileBusy, OSError."""
        self._open: Callable[[], Shelf] | None = open_shelf
        self._shelf: Shelf = NoShelf()

    @property
    def moment(self) -> Moment | None:
        return self._shelf.moment

    @property
    def num_pages(self) -> int:
        return self._shelf.num_pages

    def has_arrived(self) -> bool:
        if self._open is None:
            return False
        try:
            self._shelf = self._open()
        except FileBusy:
            return False
        except OSError as error:
            log.error("no pages on disk: %s", error)
            self._open = None
            return False
        log.info("the file of pages is free: it is used from now on")
        self._open = None
        return True

    def offer(self, page: KnownPage) -> None:
        self._shelf.offer(page)

    def restore(self, chain: PageChain, token_ids: Sequence[int], *, max_pages: int) -> int:
        return self._shelf.restore(chain, token_ids, max_pages=max_pages)

    def purge(
        self, scope: Scope, moment: Moment | None, *, also: Collection[bytes] = ()
    ) -> list[KnownPage]:
        return self._shelf.purge(scope, moment, also=also)

    def covered(self, scope: Scope) -> list[KnownPage]:
        return self._shelf.covered(scope)
