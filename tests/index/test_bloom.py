from hypothesis import given
from hypothesis import strategies as st

from index.bloom import FIRST_KEYS, BloomFilter


@given(st.sets(st.text(), max_size=200))
def test_what_was_added_is_always_there(keys):
    some = BloomFilter(max_bytes=2**16)
    for key in keys:
        some.add(key)
        some.add(key)
    assert all(key in some for key in keys)


def test_few_that_were_not_added_seem_to_be_there_however_far_it_grows():
    some = BloomFilter(max_bytes=2**20)
    for number in range(8 * FIRST_KEYS):
        some.add(f"added {number}")
    assert not some.full
    assert some.num_bytes > 4 * BloomFilter(max_bytes=2**20).num_bytes
    wrong = sum(f"other {number}" in some for number in range(20_000))
    assert wrong < 20_000 * 0.02
    assert all(f"added {number}" in some for number in range(8 * FIRST_KEYS))


def test_full_filter_says_so_and_stays_within_its_bound():
    small = BloomFilter(max_bytes=1000)
    for number in range(2000):
        small.add(str(number))
    assert small.full
    assert small.num_bytes <= 1000
