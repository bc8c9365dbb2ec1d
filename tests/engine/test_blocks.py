import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv.blocks import PageAllocator, PagesCorrupt


@given(
    st.lists(st.tuples(st.sampled_from("gr"), st.integers(0, 5), st.integers(0, 12)), max_size=60)
)
def test_pages_are_never_lost_nor_given_out_twice(steps: list[tuple[str, int, int]]) -> None:
    pages = PageAllocator(16)
    sizes: dict[int, int] = {}
    for action, owner, size in steps:
        if action == "r":
            pages.release(owner)
            sizes.pop(owner, None)
        else:
            had = sizes.get(owner, 0)
            fits = size - had <= 16 - sum(sizes.values())
            assert pages.grow(owner, size) is fits
            if fits:
                sizes[owner] = max(had, size)
        pages.check_integrity()
        assert pages.num_free == 16 - sum(sizes.values())
        assert {o: len(pages.table(o)) for o in sizes} == sizes


def test_a_table_keeps_its_pages_when_it_grows() -> None:
    pages = PageAllocator(4)
    pages.grow(1, 2)
    before = list(pages.table(1))
    pages.grow(1, 3)
    assert pages.table(1)[:2] == before


def test_too_few_free_pages_change_nothing() -> None:
    pages = PageAllocator(4)
    assert pages.grow(1, 3)
    assert not pages.grow(2, 2)
    assert pages.table(2) == []
    assert pages.num_free == 1


def test_a_page_that_is_owned_twice_is_noticed() -> None:
    pages = PageAllocator(4)
    pages.grow(1, 1)
    pages.grow(2, 1)
    pages.table(2)[0] = pages.table(1)[0]
    with pytest.raises(PagesCorrupt):
        pages.check_integrity()
