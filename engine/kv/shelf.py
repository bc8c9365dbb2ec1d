"""Where published pages also go, to be there after a restart."""

from collections.abc import Collection, Sequence
from typing import Protocol

from engine.kv.pagehash import PageChain
from engine.kv.purges import Scope
from engine.kv.tree import KnownPage
from engine.process.protocol import Moment


class Shelf(Protocol):
    """What the archive asks."""

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

    def purge(
        self, scope: Scope, moment: Moment | None, *, also: Collection[bytes] = ()
    ) -> list[KnownPage]:
        """Erase what a purge covers, the pages with the digests in `also`, and what continues them.
        When it returns no restart brings it back."""
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

    def purge(
        self, scope: Scope, moment: Moment | None, *, also: Collection[bytes] = ()
    ) -> list[KnownPage]:
        return []

    def covered(self, scope: Scope) -> list[KnownPage]:
        return []
