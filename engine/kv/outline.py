"""The prefix tree as people look at it: which beginnings are kept, and who uses them. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

import msgspec

from engine.kv.tree import KnownPage
from engine.process.protocol import Outlined, PrefixNode

MAX_TAGS = 16
"""Named of one node; the others are counted."""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Of one page, now."""

    refs: int
    """Sequences that hold it."""
    is_pinned: bool


UseOf = Callable[[KnownPage], Use]
Following = dict[bytes, list[KnownPage]]
"""What continues a page, by its digest."""


class _Run(msgspec.Struct, kw_only=True, eq=False):
    """Pages after one another that are used alike, up to where the tree branches. Not frozen: what
    lies below is added up when all are known."""

    parent: int | None
    """Among the runs; always one before it."""
    use: Use
    pages: list[KnownPage]
    tokens_below: int
    """Its own and those of all that continue it."""


def outline(pages: Iterable[KnownPage], use_of: UseOf, *, now_s: float, max_nodes: int) -> Outlined:
    """The `max_nodes` runs under which most tokens lie, parents first, and the numbers of all. None
    is shown without those that it continues. `now_s`: on the clock of the pages."""
    runs = _runs(pages, use_of)
    for run in reversed(runs):
        if run.parent is not None:
            runs[run.parent].tokens_below += run.tokens_below
    # More lies under a parent than under its child: no child is chosen before it.
    largest = sorted(range(len(runs)), key=lambda index: -runs[index].tokens_below)
    ids = {index: at for at, index in enumerate(sorted(largest[:max_nodes]))}
    return Outlined(
        num_nodes=len(runs),
        num_tokens=sum(run.tokens_below for run in runs if run.parent is None),
        nodes=tuple(_node(runs[index], ids, now_s=now_s) for index in ids),
    )


def _runs(pages: Iterable[KnownPage], use_of: UseOf) -> list[_Run]:
    """Each after the one that it continues."""
    known = {page.digest: page for page in pages}
    following: Following = defaultdict(list)
    for page in known.values():
        following[page.parent].append(page)
    runs: list[_Run] = []
    # A page whose parent is gone begins a tree of its own until that is back.
    pending: list[tuple[KnownPage, int | None]] = [
        (page, None) for page in known.values() if page.parent not in known
    ]
    while pending:
        first, parent = pending.pop()
        members = list(_alike(first, following, use_of))
        num_tokens = sum(len(page.token_ids) for page in members)
        run = _Run(parent=parent, use=use_of(first), pages=members, tokens_below=num_tokens)
        pending += [(page, len(runs)) for page in following.get(members[-1].digest, [])]
        runs.append(run)
    return runs


def _alike(first: KnownPage, following: Following, use_of: UseOf) -> Iterator[KnownPage]:
    """The page, and what continues it without a branch and in the same use."""
    page, use = first, use_of(first)
    yield page
    while len(after := following.get(page.digest, [])) == 1:
        page = after[0]
        if page.tags != first.tags or use_of(page) != use:
            return
        yield page


def _node(run: _Run, ids: dict[int, int], *, now_s: float) -> PrefixNode:
    first = run.pages[0]
    tags = None if first.tags is None else sorted(first.tags)
    return PrefixNode(
        parent=None if run.parent is None else ids[run.parent],
        isolation=first.isolation,
        pages=len(run.pages),
        tokens=sum(len(page.token_ids) for page in run.pages),
        tokens_below=run.tokens_below,
        refs=run.use.refs,
        pinned=run.use.is_pinned,
        tags=None if tags is None else tuple(tags[:MAX_TAGS]),
        num_tags=None if tags is None else len(tags),
        age_s=now_s - min(page.made_s for page in run.pages),
        unused_s=now_s - max(page.used_s for page in run.pages),
    )
