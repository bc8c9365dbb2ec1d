"""Pages by the digests of their contents, each knowing the page before it. Plain Python."""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from engine.kv.purges import Scope, Tags


class KnownPage(msgspec.Struct, kw_only=True, eq=False):
    """A page that can be found. Not frozen: requests that use it add their tags."""

    digest: bytes
    parent: bytes
    """Digest of the page before it; of the root for the first."""
    token_ids: tuple[int, ...]
    place: int
    """Where its contents lie: a page of the pool, or a slot of the file."""
    tags: Tags
    isolation: str = ""
    """Who may find it. Known of pages of the pool only, as are the times."""
    made_s: float = 0.0
    used_s: float = 0.0


class PageTree:
    """Known pages, in the order of their coming."""

    def __init__(self) -> None:
        self._pages: dict[bytes, KnownPage] = {}
        self._following: dict[bytes, dict[bytes, KnownPage]] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def __iter__(self) -> Iterator[KnownPage]:
        return iter(self._pages.values())

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._pages

    def get(self, digest: bytes, token_ids: Sequence[int]) -> KnownPage | None:
        """The page of that digest, if it really holds these tokens."""
        page = self._pages.get(digest)
        return page if page is not None and page.token_ids == tuple(token_ids) else None

    def page(self, digest: bytes) -> KnownPage:
        """Of a digest that is known."""
        return self._pages[digest]

    def add(self, page: KnownPage) -> None:
        """A page whose digest is not known yet."""
        assert page.digest not in self._pages
        self._pages[page.digest] = page
        self._following.setdefault(page.parent, {})[page.digest] = page

    def is_continued(self, page: KnownPage) -> bool:
        """Another page here comes after it."""
        return page.digest in self._following

    def following(self, digest: bytes) -> Iterator[KnownPage]:
        """The pages that come after the one of that digest; who came last is first."""
        return reversed(self._following.get(digest, {}).values())

    def remove(self, page: KnownPage) -> None:
        """What continues it stays, and is found again when the page is back."""
        del self._pages[page.digest]
        beside = self._following[page.parent]
        del beside[page.digest]
        if not beside:
            del self._following[page.parent]

    def use(self, page: KnownPage) -> None:
        """Move it to the end of the order."""
        self._pages[page.digest] = self._pages.pop(page.digest)

    def covered(self, scope: Scope, *, also: Collection[bytes] = ()) -> list[KnownPage]:
        """What a purge has to take: the pages it names, those with the digests in `also`, and all
        that continue them, since their keys and values were computed from them."""
        found: dict[bytes, KnownPage] = {}
        pending = [page for page in self if scope.covers(page.tags) or page.digest in also]
        while pending:
            page = pending.pop()
            if page.digest not in found:
                found[page.digest] = page
                pending += self.following(page.digest)
        return list(found.values())
