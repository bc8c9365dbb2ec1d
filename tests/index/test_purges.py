"""Marks of purges and what stands after them."""

import msgspec
from sample_entries import entry, key_of

from index.entry import Snapshot
from index.purges import PurgeTable, tags_of
from index.store import ALL, Purge


def test_purge_moves_every_tag_that_it_names_each_once():
    purge = Purge(tags=("doc:1", "doc:1"), keys=("k",), models=("m",), tenants=("t",))
    assert tags_of(purge) == ("doc:1", "key:k", "model:m", "tenant:t")
    assert tags_of(Purge(everything=True)) == (ALL,)


def test_entry_stands_until_one_of_its_tags_its_key_or_everything_is_purged():
    for tag in ("doc:1", f"key:{key_of('a')}", ALL):
        table = PurgeTable(generation="g")
        table.mark(("doc:2",), soft=False)
        one = entry("a", table.snapshot, extra_tags=("doc:1",))
        assert table.standing(one) == "fresh"
        table.mark(("doc:2", "key:other"), soft=False)
        assert table.standing(one) == "fresh"
        table.mark((tag,), soft=True)
        assert table.standing(one) == "soft_purged"
        table.mark((tag,), soft=False)
        assert table.standing(one) == "purged"
        table.mark((tag,), soft=True)
        assert table.standing(one) == "purged"


def test_entry_of_lost_counters_never_stands():
    table = PurgeTable(generation="g", sequence=5)
    for seen in (Snapshot(generation="other", sequence=5), Snapshot(generation="g", sequence=6)):
        assert table.standing(entry("a", seen)) == "purged"
        assert table.admits(entry("a", seen)) == "generation"


def test_entry_older_than_a_forgotten_purge_is_not_admitted():
    table = PurgeTable(generation="g")
    early = entry("a", table.snapshot, extra_tags=("doc:1",))
    table.mark(("doc:1",), soft=False)
    seen = table.snapshot
    table.forget("doc:1")
    assert table.admits(early) == "purged"
    assert table.admits(msgspec.structs.replace(early, snapshot=seen)) == "ok"
