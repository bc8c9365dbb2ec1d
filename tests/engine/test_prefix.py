"""The bookkeeping of pages and of the prefix cache together, with no model and no tensor."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.kv.blocks import PageAllocator, PageState
from engine.kv.pagehash import PageChain
from engine.kv.prefix import PrefixCache, Publication
from engine.kv.purges import EVERYTHING, Scope

PAGE = 2
NUM_PAGES = 10
ROOT = b"root"


class Holder:
    """A sequence, as far as its pages go."""

    def __init__(self, owner: int, token_ids: list[int], tags: frozenset[str]) -> None:
        self.owner = owner
        self.token_ids = token_ids
        self.tags = tags
        self.chain = PageChain(ROOT, page_tokens=PAGE)
        self.publishes = True


class Pages(RuleBasedStateMachine):
    """Begin, publish, release and purge in any order; the contents of pages are kept beside it, so
    that a hit on the wrong page shows."""

    @initialize()
    def begin(self) -> None:
        self.pages = PageAllocator(NUM_PAGES)
        self.cache = PrefixCache(self.pages, page_tokens=PAGE)
        self.contents: dict[int, tuple[int, ...]] = {}
        self.holders: list[Holder] = []
        self.count = 0

    @rule(
        token_ids=st.lists(st.integers(0, 1), min_size=1, max_size=9),
        tags=st.sets(st.sampled_from("ab")),
        pins=st.booleans(),
    )
    def admit(self, token_ids: list[int], tags: set[str], pins: bool) -> None:
        self.count += 1
        holder = Holder(self.count, token_ids, frozenset(tags))
        found = self.cache.find(holder.chain, token_ids, max_pages=(len(token_ids) - 1) // PAGE)
        for index, page in enumerate(found):
            assert self.contents[page] == tuple(token_ids[: PAGE * (index + 1)]), "wrong page"
        self._check_part(holder, found)
        self.pages.share(holder.owner, found)
        if not self.cache.reserve(holder.owner, -(-len(token_ids) // PAGE)):
            self.pages.release(holder.owner)
            return
        self.holders.append(holder)
        table = self.pages.table(holder.owner)
        for index in range(len(token_ids) // PAGE):
            page = table[index]
            if index >= len(found):
                self.contents[page] = tuple(token_ids[: PAGE * (index + 1)])
                self.pages.fill(page)
                done = self.cache.publish(
                    holder.chain, token_ids, index, page=page, tags=holder.tags
                )
                assert done is not Publication.ORPHANED
            known = self.cache.tag(holder.chain, token_ids, index, holder.tags)
            assert known is not None
            if pins:
                self.cache.pin(known.place)

    def _check_part(self, holder: Holder, found: list[int]) -> None:
        first = PAGE * len(found)
        room = len(holder.token_ids) - 1 - first
        part = self.cache.part(holder.chain, holder.token_ids, len(found), max_tokens=room)
        if part is not None:
            assert 0 < part.num_tokens <= min(room, PAGE)
            known = slice(first + part.num_tokens)
            assert self.contents[part.page][known] == tuple(holder.token_ids[known])

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        holder = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        self.pages.release(holder.owner)

    @rule(tags=st.sets(st.sampled_from("ab"), min_size=1))
    def purge(self, tags: set[str]) -> None:
        scope = Scope(tags=frozenset(tags))
        expected = self.cache.covered(scope)
        assert self.cache.purge(scope) == expected
        assert self.cache.covered(scope) == []

    @rule()
    def purge_everything(self) -> None:
        self.cache.purge(EVERYTHING)
        assert self.cache.num_pages == 0

    @rule()
    def unpin(self) -> None:
        self.cache.unpin()

    @invariant()
    def whole(self) -> None:
        self.cache.check_integrity()

    def teardown(self) -> None:
        for holder in self.holders:
            self.pages.release(holder.owner)
        self.cache.unpin()
        assert self.pages.num_available == NUM_PAGES


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def _put(
    cache: PrefixCache, pages: PageAllocator, owner: int, token_ids: list[int], *tags: str
) -> None:
    chain = PageChain(ROOT, page_tokens=PAGE)
    pages.share(owner, cache.find(chain, token_ids, max_pages=len(token_ids) // PAGE))
    assert cache.reserve(owner, len(token_ids) // PAGE)
    for index, page in enumerate(pages.table(owner)):
        pages.fill(page)
        if pages.state(page) is PageState.FULL:
            cache.publish(chain, token_ids, index, page=page, tags=frozenset(tags))
        cache.tag(chain, token_ids, index, frozenset(tags))
    pages.release(owner)


def _found(cache: PrefixCache, token_ids: list[int]) -> int:
    chain = PageChain(ROOT, page_tokens=PAGE)
    return len(cache.find(chain, token_ids, max_pages=len(token_ids) // PAGE))


def test_what_continues_a_page_goes_before_it_and_what_was_used_lately_stays() -> None:
    pages = PageAllocator(6)
    cache = PrefixCache(pages, page_tokens=PAGE)
    _put(cache, pages, 1, [1, 1, 2, 2, 3, 3])
    _put(cache, pages, 2, [9, 9, 8, 8, 7, 7])
    _put(cache, pages, 3, [1, 1, 2, 2])
    assert cache.reserve(4, 2)
    assert (_found(cache, [1, 1, 2, 2, 3, 3]), _found(cache, [9, 9, 8, 8, 7, 7])) == (2, 2)
    assert cache.reserve(4, 4)
    assert (_found(cache, [1, 1, 2, 2, 3, 3]), _found(cache, [9, 9, 8, 8, 7, 7])) == (2, 0)
    assert not cache.reserve(4, 7)


def test_a_digest_whose_tokens_differ_is_no_hit() -> None:
    pages = PageAllocator(2)
    cache = PrefixCache(pages, page_tokens=PAGE)
    _put(cache, pages, 1, [1, 1])
    (known,) = cache.covered(EVERYTHING)
    known.token_ids = (5, 5)  # as if two contents had one digest
    assert _found(cache, [1, 1]) == 0


def test_a_purge_takes_what_continues_a_page_and_leaves_what_is_beside_it() -> None:
    pages = PageAllocator(8)
    cache = PrefixCache(pages, page_tokens=PAGE)
    _put(cache, pages, 1, [1, 1, 2, 2], "a")
    _put(cache, pages, 2, [1, 1, 2, 2, 3, 3])
    _put(cache, pages, 3, [7, 7], "b")
    assert len(cache.purge(Scope(tags=frozenset("a")))) == 3
    assert (_found(cache, [1, 1]), _found(cache, [7, 7])) == (0, 1)
    assert pages.num_free == 7


def test_a_page_of_more_tags_than_are_kept_goes_with_any() -> None:
    pages = PageAllocator(2)
    cache = PrefixCache(pages, page_tokens=PAGE)
    for number in range(300):
        _put(cache, pages, number, [1, 1], f"t{number}")
    assert len(cache.purge(Scope(tags=frozenset({"another"})))) == 1


def test_pinned_pages_outlast_others_and_fill_no_more_than_half() -> None:
    pages = PageAllocator(8)
    cache = PrefixCache(pages, page_tokens=PAGE)
    _put(cache, pages, 1, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6])
    for known in list(cache.covered(EVERYTHING)):
        cache.pin(known.place)
    assert cache.num_pinned == 4
    assert not cache.reserve(2, 5)
    assert cache.reserve(2, 4)
    assert cache.num_pages == 4
    assert len(cache.purge(EVERYTHING)) == 4, "a purge takes them all the same"
    assert pages.num_free == 4


def test_a_page_that_is_held_stays_its_holders_when_it_is_purged() -> None:
    pages = PageAllocator(4)
    cache = PrefixCache(pages, page_tokens=PAGE)
    _put(cache, pages, 1, [1, 1])
    pages.share(2, cache.find(PageChain(ROOT, page_tokens=PAGE), [1, 1], max_pages=1))
    (page,) = pages.table(2)
    cache.purge(EVERYTHING)
    assert (pages.state(page), pages.num_free) == (PageState.FULL, 3)
    pages.release(2)
    assert pages.num_free == 4


def test_lookups_of_many_sequences_never_mix_their_beginnings() -> None:
    source = random.Random(3)
    pages = PageAllocator(64)
    cache = PrefixCache(pages, page_tokens=PAGE)
    kept = [[source.randrange(3) for _ in range(8)] for _ in range(12)]
    for number, token_ids in enumerate(kept):
        _put(cache, pages, number, token_ids)
    for token_ids in kept:
        assert _found(cache, token_ids) == 4
