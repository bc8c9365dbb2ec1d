"""Pages of the change feed."""

from sample_entries import entry

from index.entry import Snapshot
from index.nearest.feed import Cursor, Deletion, Put, first_page, next_page

SEEN = Snapshot(generation="g", sequence=0)


def puts(*changes):
    return [Put(change, entry(str(change), SEEN)) for change in changes]


def test_cursor_survives_its_number():
    for cursor in (Cursor(after=7), Cursor(after=3, until=2**40), Cursor(after=0, until=9)):
        assert Cursor.parse(cursor.number(), last=99) == cursor
    assert Cursor.parse(0, last=5) == Cursor(after=0, until=5)


def test_first_pages_end_where_the_feed_stood_when_they_began():
    first = first_page(Cursor(after=0, until=9), puts(1, 4), limit=2)
    assert Cursor.parse(first.cursor, last=99) == Cursor(after=4, until=9)
    second = first_page(Cursor(after=4, until=9), puts(6), limit=2)
    assert Cursor.parse(second.cursor, last=99) == Cursor(after=9)


def test_page_takes_puts_and_deletions_in_the_order_in_which_they_happened():
    page = next_page(Cursor(after=1), puts(2, 6, 7), [Deletion(3, "x"), Deletion(5, "y")], limit=3)
    assert [one.prompt for one in page.put] == ["What is 2?"]
    assert page.deleted == ("x", "y")
    assert Cursor.parse(page.cursor, last=99) == Cursor(after=5)


def test_unreadable_entry_is_passed_over():
    page = next_page(Cursor(after=1), [Put(2, None), *puts(3)], [], limit=10)
    assert [one.prompt for one in page.put] == ["What is 3?"]
    assert page.cursor == 3
