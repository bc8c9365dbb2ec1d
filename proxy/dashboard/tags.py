"""Which tags the stored answers carry."""

from collections import Counter
from collections.abc import Iterable

import msgspec
from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from index.entry import Entry
from index.store import Filter
from index.tags import RESERVED
from proxy.admin.office import Office

_MAX_ENTRIES = 5000
_PAGE = 500
_MAX_TAGS = 500


class TagView(msgspec.Struct, frozen=True, kw_only=True):
    """A tag, on how many of the entries looked at, and when the newest of them was made."""

    tag: str
    entries: int
    newest: float


class TagPage(msgspec.Struct, frozen=True, kw_only=True):
    """Those that somebody named first, of these the most frequent. `complete`: every live entry
    was looked at, and every tag of theirs that matches is here."""

    tags: tuple[TagView, ...]
    entries: int
    complete: bool


@get("/dashboard/tags")
async def tags(office: NamedDependency[Office], q: FromQuery[str] = "") -> TagPage:
    """Tags that contain `q`, of the newest entries."""
    seen: Counter[str] = Counter()
    newest: dict[str, float] = {}
    num_entries, cursor, at_end = 0, None, False
    while num_entries < _MAX_ENTRIES and not at_end:
        page = await office.store.scan(Filter(), now=office.clock(), cursor=cursor, limit=_PAGE)
        _count(page.entries, q, seen, newest)
        num_entries += len(page.entries)
        cursor, at_end = page.cursor, page.cursor is None
    shown = sorted(seen.items(), key=_rank)[:_MAX_TAGS]
    return TagPage(
        tags=tuple(TagView(tag=tag, entries=n, newest=newest[tag]) for tag, n in shown),
        entries=num_entries,
        complete=at_end and len(seen) <= _MAX_TAGS,
    )


def _rank(counted: tuple[str, int]) -> tuple[bool, int, str]:
    tag, number = counted
    return tag.startswith(RESERVED), -number, tag


def _count(
    entries: Iterable[Entry], part: str, seen: Counter[str], newest: dict[str, float]
) -> None:
    for entry in entries:
        for tag in entry.tags:
            if part in tag:
                seen[tag] += 1
                newest[tag] = max(newest.get(tag, 0.0), entry.created_at)
