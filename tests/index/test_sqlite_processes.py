"""Several processes on one file, and processes that die."""

import random

import pytest
from sample_entries import NOW, key_of
from store_process import Process

from index.sqlite import SqliteStore
from index.store import Filter, Purge


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
async def store(path):
    store = await SqliteStore.open(path, memory_bytes=2**22, disk_bytes=2**28)
    yield store
    await store.check_integrity()
    await store.close()


@pytest.fixture
def other(path, store):
    process = Process("serve", path)
    assert process.answer() == "open"
    yield process
    process.end()
    assert process.process.returncode == 0


async def test_purge_in_one_process_is_seen_by_the_next_get_in_the_other(store, other):
    for number in range(30):
        assert other.call("put", ["a", f"answer {number}", ["doc:1", f"doc:{number}"]])
        for _ in range(2):  # the second is a hit in its memory tier
            assert other.call("get", "a") == ["fresh", f"answer {number}"]
        assert (await store.get(key_of("a"), now=NOW)).reason == "fresh"
        purge = Purge(tags=("doc:1",)) if number % 2 else Purge(keys=(key_of("a"),))
        await store.purge(purge, now=NOW)
        assert other.call("get", "a")[1] is None
        assert (await store.get(key_of("a"), now=NOW)).entry is None


async def test_purge_of_much_by_the_other_process_is_seen_here(store, other):
    for number in range(100):
        assert other.call("put", [str(number), "answer", ["doc:1"]])
        assert (await store.get(key_of(str(number)), now=NOW)).reason == "fresh"
    assert other.call("purge", "doc:1") == 1
    for number in range(100):
        assert (await store.get(key_of(str(number)), now=NOW)).reason == "purged"
    assert await store.sweep(now=NOW) == 100
    assert other.call("get", "1") == ["absent", None]


async def test_entry_overwritten_or_freed_by_another_process_leaves_the_memory_tier(store, other):
    for number in range(10):
        assert other.call("put", ["a", f"answer {number}", []])
        lookup = await store.get(key_of("a"), now=NOW)
        assert lookup.entry.payload == b"answer %d" % number
    assert other.call("delete", "a")
    assert (await store.get(key_of("a"), now=NOW)).reason == "absent"


async def test_follower_here_hears_of_what_the_other_process_did(store, other):
    cursor = (await store.changes(0, limit=100)).cursor
    assert other.call("put", ["a", "answer", ["doc:1"]])
    changes = await store.changes(cursor, limit=100)
    assert [one.key for one in changes.put] == [key_of("a")]
    assert other.call("purge", "doc:1")
    changes = await store.changes(changes.cursor, limit=100)
    assert changes.deleted == (key_of("a"),)


def test_four_processes_never_serve_what_any_of_them_has_purged(path, tmp_path):
    shared = tmp_path / "purged"
    shared.write_bytes(bytes(64))
    workers = [Process("contend", path, shared, seed, 1500) for seed in range(4)]
    reports = [worker.end()[0] for worker in workers]
    assert [worker.process.returncode for worker in workers] == [0] * 4
    assert sum(report["violations"] for report in reports) == 0
    assert all(report["hits"] > 100 and report["purges"] > 20 for report in reports)


async def test_killed_writer_loses_nothing_acknowledged_and_leaves_nothing_torn(path):
    chance = random.Random(4)
    done = []
    for _ in range(6):
        writer = Process("write", path)
        done += [writer.answer() for _ in range(chance.randint(5, 120))]
        done += writer.end(kill=True)
    purged = {batch for what, batch, _ in done if what == "purge"}
    begun = {batch for what, batch, _ in done if what == "purging"}
    assert len(purged) > 5

    store = await SqliteStore.open(path, memory_bytes=2**22, disk_bytes=2**28)
    await store.check_integrity()
    for what, batch, name in done:
        if what != "put":
            continue
        lookup = await store.get(key_of(name), now=NOW)
        if batch in purged:
            assert lookup.entry is None
        elif lookup.entry is None:
            assert batch in begun  # done, but the writer died before it could say so
        else:
            assert lookup.entry.payload == name.encode() * 500
    page = await store.scan(Filter(), now=NOW, cursor=None, limit=10_000)
    assert all(one.payload == one.prompt[8:-1].encode() * 500 for one in page.entries)
    assert (await store.snapshot()).sequence >= len(purged)
    await store.close()


def test_full_disk_is_a_fault_of_writes_while_reads_go_on(path):
    (report,) = Process("fill", path, 400_000).end()
    assert report["stored"] > 5
    assert (report["found"], report["absent"]) == (["fresh"], "absent")
    assert "store.db" in report["fault"]
    assert report["after"] == (["fresh"] if report["purged"] == "fault" else ["purged"])
    assert report["again"]
