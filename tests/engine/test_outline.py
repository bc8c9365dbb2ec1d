"""The prefix tree as people look at it, on pages that need no model."""

import itertools

from engine.kv.blocks import PageAllocator
from engine.kv.outline import MAX_TAGS, Use, outline
from engine.kv.pagehash import PageChain
from engine.kv.prefix import PrefixCache
from engine.kv.tree import KnownPage
from engine.process.protocol import Outlined

IDLE = Use(refs=0, is_pinned=False)


def page(name: str, parent: str, *, tags: frozenset[str] | None = frozenset()) -> KnownPage:
    return KnownPage(
        digest=name.encode(), parent=parent.encode(), token_ids=(1, 2), place=0, tags=tags,
        isolation="everyone", made_s=10.0, used_s=20.0,
    )  # fmt: skip


def outlined(*pages: KnownPage, max_nodes: int = 100, **uses: Use) -> Outlined:
    def use_of(known: KnownPage) -> Use:
        return uses.get(known.digest.decode(), IDLE)

    return outline(pages, use_of, now_s=25.0, max_nodes=max_nodes)


def test_pages_that_are_used_alike_are_one_node() -> None:
    tree = outlined(page("a", "root"), page("b", "a"), page("c", "b"))
    (node,) = tree.nodes
    assert (node.pages, node.tokens, node.tokens_below, node.parent) == (3, 6, 6, None)
    assert (node.isolation, node.age_s, node.unused_s) == ("everyone", 15.0, 5.0)
    assert (tree.num_nodes, tree.num_tokens) == (1, 6)


def test_a_branch_another_tag_and_another_use_each_begin_a_node() -> None:
    tagged = frozenset({"doc:1"})
    tree = outlined(
        page("a", "root"), page("b", "a", tags=tagged), page("c", "b", tags=tagged),
        page("d", "c", tags=tagged), page("e", "c", tags=tagged),
        c=Use(refs=2, is_pinned=True),
    )  # fmt: skip
    shape = [(node.parent, node.tokens, node.tokens_below) for node in tree.nodes]
    assert shape == [(None, 2, 10), (0, 2, 8), (1, 2, 6), (2, 2, 2), (2, 2, 2)]
    assert [node.refs for node in tree.nodes] == [0, 0, 2, 0, 0]
    assert [node.pinned for node in tree.nodes] == [False, False, True, False, False]
    assert [node.tags for node in tree.nodes[:2]] == [(), ("doc:1",)]


def test_the_largest_nodes_are_shown_never_without_what_they_continue() -> None:
    wide = [page(f"w{n}", "root") for n in range(5)]
    deep = [page("a", "root"), page("b", "a"), page("x", "a"), page("y", "x"), page("z", "x")]
    tree = outlined(*wide, *deep, max_nodes=3)
    assert [(node.parent, node.tokens_below) for node in tree.nodes] == [(None, 10), (0, 6), (1, 2)]
    assert (tree.num_nodes, tree.num_tokens) == (10, 20)


def test_a_page_whose_parent_is_gone_begins_a_tree() -> None:
    tree = outlined(page("b", "a"), page("c", "b"))
    assert [(node.parent, node.tokens) for node in tree.nodes] == [(None, 4)]


def test_many_tags_are_counted_and_unknown_ones_are_said_to_be() -> None:
    many = frozenset(f"doc:{n:03}" for n in range(MAX_TAGS + 4))
    named, unknown = outlined(page("a", "root", tags=many), page("b", "a", tags=None)).nodes
    assert named.tags == tuple(f"doc:{n:03}" for n in range(MAX_TAGS))
    assert named.num_tags == MAX_TAGS + 4
    assert (unknown.tags, unknown.num_tags) == (None, None)


def test_a_cache_tells_holders_from_pins_and_who_may_use_what() -> None:
    pages, clock = PageAllocator(8), itertools.count(100.0)
    cache = PrefixCache(pages, page_tokens=2, clock=lambda: next(clock))
    chain = PageChain(b"root", page_tokens=2, isolation="tenant:one")
    token_ids = [1, 2, 3, 4]
    assert pages.grow(0, 2)
    for index, place in enumerate(pages.table(0)):
        pages.fill(place)
        cache.publish(chain, token_ids, index, page=place, tags=frozenset())
    cache.pin(pages.table(0)[0])
    cache.tag(chain, token_ids, 0, frozenset())
    pinned, held = cache.outline(max_nodes=10).nodes
    assert (pinned.refs, pinned.pinned, pinned.isolation) == (1, True, "tenant:one")
    assert (held.refs, held.pinned, held.parent) == (1, False, 0)
    assert (pinned.age_s, pinned.unused_s, held.age_s) == (3.0, 1.0, 2.0)
    pages.release(0)
    assert [node.refs for node in cache.outline(max_nodes=10).nodes] == [0, 0]
    cache.unpin()
    assert [node.pages for node in cache.outline(max_nodes=10).nodes] == [2]
