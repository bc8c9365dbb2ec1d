from hypothesis import given
from hypothesis import strategies as st

from engine.kv.pagehash import PageChain, page_digest, root_digest

NAMES = st.text(max_size=8)


@given(st.dictionaries(NAMES, NAMES, max_size=3), st.dictionaries(NAMES, NAMES, max_size=3))
def test_roots_are_equal_only_for_equal_keys(one: dict[str, str], other: dict[str, str]) -> None:
    assert (root_digest(b"x", one) == root_digest(b"x", other)) == (one == other)


def test_names_of_different_kinds_never_meet() -> None:
    roots = {
        root_digest(b"x", {"tenant": "ab", "adapter": "c"}),
        root_digest(b"x", {"tenant": "a", "adapter": "bc"}),
        root_digest(b"x", {"tenant": "ab"}),
        root_digest(b"x", {"adapter": "ab"}),
        root_digest(b"xtenant", {"ab": ""}),
        root_digest(b"y", {"tenant": "ab"}),
    }
    assert len(roots) == 6


@given(st.lists(st.integers(0, 2**31), min_size=8, max_size=32))
def test_a_chain_names_what_came_before(token_ids: list[int]) -> None:
    root = root_digest(b"x", {})
    chain = PageChain(root, page_tokens=4)
    parent = root
    for index in range(len(token_ids) // 4):
        assert chain.parent(index, token_ids) == parent
        parent = page_digest(parent, token_ids[4 * index : 4 * index + 4])
        assert chain.page(index, token_ids) == parent
    other = [token_ids[0] + 1, *token_ids[1:]]
    assert PageChain(root, page_tokens=4).page(1, other) != chain.page(1, token_ids)
