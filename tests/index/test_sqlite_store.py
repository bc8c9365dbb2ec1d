"""What is special about the store in a file: the file."""

import asyncio
import logging
import os
import random
import sqlite3

import pytest
from sample_entries import NOW, entry, key_of

from index.errors import StoreFault, StoreUnusable
from index.purges import RETAIN_S
from index.sqlite import SqliteStore
from index.store import Filter, Purge, Stored

MIB = 2**20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "var" / "store.db"


async def open_store(path, *, memory_bytes=4 * MIB, disk_bytes=256 * MIB):
    return await SqliteStore.open(path, memory_bytes=memory_bytes, disk_bytes=disk_bytes)


async def fill(store, names, **changes):
    snapshot = await store.snapshot()
    puts = (store.put(entry(str(name), snapshot, **changes)) for name in names)
    assert all(isinstance(outcome, Stored) for outcome in await asyncio.gather(*puts))


async def present(store, names):
    return [n for n in names if (await store.get(key_of(str(n)), now=NOW)).entry is not None]


async def test_entries_purges_and_counters_outlive_the_process(path):
    store = await open_store(path)
    await fill(store, range(100), extra_tags=("doc:1",))
    await store.purge(Purge(tags=("doc:1",)), now=NOW)
    await fill(store, range(100, 110))
    snapshot, cursor = await store.snapshot(), (await store.changes(0, limit=500)).cursor
    await store.close()
    assert not os.path.exists(f"{path}-wal")

    store = await open_store(path)
    assert await store.snapshot() == snapshot
    assert await present(store, range(110)) == list(range(100, 110))
    assert (await store.stats()).entries == 110
    assert (await store.changes(cursor, limit=500)).cursor == cursor
    assert await store.sweep(now=NOW) == 100
    await store.check_integrity()
    await store.close()


async def test_file_is_for_its_owner_only(path):
    store = await open_store(path)
    await fill(store, [1])
    for suffix in ("", "-wal", "-shm", ".lock"):
        assert os.stat(f"{path}{suffix}").st_mode & 0o077 == 0
    await store.close()


async def test_bound_on_disk_holds_within_five_percent_and_what_is_used_stays(path):
    chance = random.Random(3)
    disk_bytes = 16 * MIB
    store = await open_store(path, memory_bytes=0, disk_bytes=disk_bytes)
    await fill(store, ["used"], payload=bytes(8000))
    evicted = largest = 0
    for first in range(0, 4000, 50):
        snapshot = await store.snapshot()
        answers = [chance.randbytes(chance.randint(0, 16_000)) for _ in range(50)]
        puts = [
            store.put(entry(str(first + number), snapshot, payload=answer))
            for number, answer in enumerate(answers)
        ]
        evicted += sum(outcome.evicted for outcome in await asyncio.gather(*puts))
        for _ in range(10):
            assert await present(store, ["used"])
        largest = max(largest, (await store.stats()).disk_bytes)
    stats = await store.stats()
    assert largest < 1.05 * disk_bytes
    assert stats.disk_bytes > 0.8 * disk_bytes
    assert stats.evictions == evicted > 1000
    await store.check_integrity()
    await store.close()


async def test_lowered_bound_is_reached_by_a_sweep(path):
    store = await open_store(path, disk_bytes=64 * MIB)
    await fill(store, range(300), payload=bytes(20_000))
    await store.close()
    assert path.stat().st_size > 6 * MIB
    store = await open_store(path, disk_bytes=4 * MIB)
    assert await store.sweep(now=NOW) > 100
    assert (await store.stats()).disk_bytes < 4 * MIB
    assert len(await present(store, range(300))) > 100
    await store.check_integrity()
    await store.close()


async def test_swept_answer_is_nowhere_in_the_files(path):
    store = await open_store(path)
    await fill(store, range(200), payload=b"something very secret" * 400, extra_tags=("doc:1",))
    await fill(store, ["kept"], payload=b"something to keep" * 400)

    def files():
        return b"".join(one.read_bytes() for one in path.parent.iterdir())

    assert b"very secret" in files()
    await store.purge(Purge(tags=("doc:1",)), now=NOW)
    await store.sweep(now=NOW)
    assert b"very secret" not in files()
    assert b"something to keep" in files()
    await store.close()


async def test_entries_purged_again_and_again_without_a_sweep_are_all_swept(path):
    store = await open_store(path)
    for round_ in range(3):
        await fill(store, range(70 * round_, 70 * round_ + 70), extra_tags=("doc:1",))
        purged = await store.purge(Purge(tags=("doc:1",)), now=NOW)
        assert (purged.matched, purged.entries) == (70, 0)
    assert await store.sweep(now=NOW) == 210
    assert (await store.stats()).entries == 0
    await store.close()


async def test_real_purge_of_much_does_not_count_but_a_dry_run_does(path):
    store = await open_store(path)
    await fill(store, range(5001), payload=b"")
    purge = {"tenants": ("acme",)}
    dry = await store.purge(Purge(**purge, dry_run=True), now=NOW)
    purged = await store.purge(Purge(**purge), now=NOW)
    assert (dry.matched, purged.matched, purged.entries) == (5001, None, 0)
    assert await present(store, range(5001)) == []
    await store.close()


async def test_follower_too_far_behind_is_told_to_begin_anew(path):
    store = await open_store(path)
    await fill(store, ["a", "b"])
    cursor = (await store.changes(0, limit=10)).cursor
    await store.delete(key_of("a"))
    with sqlite3.connect(path) as connection:  # as after many changes
        connection.execute("UPDATE state SET change = 200000")
    connection.close()
    await fill(store, ["c"])
    assert (await store.changes(cursor, limit=10)).reset
    again = await store.changes(0, limit=10)
    assert [one.key for one in again.put] == [key_of("b"), key_of("c")]
    assert not (await store.changes(again.cursor, limit=10)).reset
    await store.check_integrity()
    await store.close()


async def test_memory_tier_too_far_behind_forgets_what_it_can_no_longer_compare(path):
    store, other = await open_store(path), await open_store(path)
    await fill(store, ["a"])
    assert await present(store, ["a"])
    await other.delete(key_of("a"))
    with sqlite3.connect(path) as connection:  # as after many changes
        connection.execute("UPDATE state SET change = 200000")
    connection.close()
    await fill(other, ["c"])  # and now the deletion is forgotten
    assert await present(store, ["a"]) == []
    await store.check_integrity()
    await other.close()
    await store.close()


async def test_idle_process_that_missed_a_forgotten_purge_serves_nothing_that_it_covered(path):
    store, other = await open_store(path), await open_store(path)
    await fill(store, ["a"], extra_tags=("doc:1",), keep_until=NOW + 1e6)
    await fill(store, ["b"], keep_until=NOW + 1e6)
    assert await present(store, ["a", "b"]) == ["a", "b"]
    early = entry("a", await store.snapshot(), extra_tags=("doc:1",))
    await other.purge(Purge(tags=("doc:1",)), now=NOW)
    await other.sweep(now=NOW + RETAIN_S + 1)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM purge").fetchone() == (0,)
    connection.close()
    assert await present(store, ["a", "b"]) == ["b"]
    assert not isinstance(await store.put(early), Stored)
    await other.close()
    await store.close()


async def test_purge_overtakes_puts_that_wait_and_covers_them(path):
    store = await open_store(path)
    snapshot = await store.snapshot()
    puts = [
        asyncio.ensure_future(store.put(entry(str(n), snapshot, extra_tags=("doc:1",))))
        for n in range(2000)
    ]
    await asyncio.sleep(0)
    await store.purge(Purge(tags=("doc:1",)), now=NOW)
    refused = sum(not isinstance(outcome, Stored) for outcome in await asyncio.gather(*puts))
    assert refused > 0
    assert await present(store, range(2000)) == []
    await store.close()


async def test_put_whose_waiter_is_cancelled_harms_nobody(path):
    store = await open_store(path)
    snapshot = await store.snapshot()
    puts = [asyncio.ensure_future(store.put(entry(str(n), snapshot))) for n in range(50)]
    await asyncio.sleep(0)
    for put in puts[::2]:
        put.cancel()
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert all(isinstance(outcome, Stored) for outcome in outcomes[1::2])
    await fill(store, ["after"])
    assert await present(store, ["after"])
    await store.check_integrity()
    await store.close()


async def test_entry_that_cannot_be_written_fails_alone(path):
    store = await open_store(path)
    snapshot = await store.snapshot()
    bad = entry("bad", snapshot, prompt="\ud800")
    outcomes = await asyncio.gather(
        *(store.put(one) for one in (entry("a", snapshot), bad, entry("b", snapshot))),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], UnicodeEncodeError)
    assert await present(store, ["a", "b"]) == ["a", "b"]
    await store.check_integrity()
    await store.close()


async def test_record_of_another_version_or_damaged_counts_as_absent(path):
    store = await open_store(path, memory_bytes=0)
    await fill(store, ["old", "damaged", "good"])
    with sqlite3.connect(path) as connection:
        ids = dict(connection.execute("SELECT key, id FROM entry"))
        for name, change in (("old", "x'63' || substr(record, 2)"), ("damaged", "record || x'00'")):
            connection.execute(
                f"UPDATE body SET record = CAST({change} AS BLOB) WHERE id = ?",
                (ids[key_of(name)],),
            )
    connection.close()
    assert await present(store, ["old", "damaged", "good"]) == ["good"]
    page = await store.scan(Filter(), now=NOW, cursor=None, limit=10)
    assert [one.key for one in page.entries] == [key_of("good")]
    assert len((await store.changes(0, limit=10)).put) == 1
    await fill(store, ["old"])
    assert await present(store, ["old"])
    await store.close()


async def test_file_of_a_newer_version_is_refused_and_left_alone(path):
    store = await open_store(path)
    await store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match=r"store\.db was written by a newer Rejoinder.*99"):
        await open_store(path)
    assert path.read_bytes() == before


async def test_database_of_another_program_is_refused_and_left_alone(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id)")
    connection.close()
    with pytest.raises(StoreUnusable, match=r"store\.db is a database of another program"):
        await open_store(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]
    connection.close()


@pytest.mark.parametrize("kind", ["directory", "below a file", "name too long"])
async def test_path_that_cannot_be_written_is_refused_by_name(path, kind):
    if kind == "directory":
        path.mkdir(parents=True)
    elif kind == "below a file":
        path.parent.write_text("")
    else:
        path = path.with_name("x" * 300)
    with pytest.raises(StoreUnusable) as refusal:
        await open_store(path)
    assert str(path) in str(refusal.value)
    assert "store.path" in str(refusal.value)


def aside(path):
    return [one for one in path.parent.iterdir() if ".corrupt-" in one.name]


async def test_corrupt_file_is_moved_aside_and_started_anew_and_said_loudly(path, caplog):
    store = await open_store(path)
    await fill(store, range(50))
    old = await store.snapshot()
    await store.close()
    path.write_bytes(b"garbage" + path.read_bytes()[7:])

    with caplog.at_level(logging.ERROR):
        store = await open_store(path)
    assert "is corrupt" in caplog.text
    (moved,) = aside(path)
    assert moved.read_bytes().startswith(b"garbage")
    assert str(moved) in caplog.text
    assert await present(store, range(50)) == []
    assert (await store.snapshot()).generation != old.generation
    assert (await store.put(entry("a", old))).reason == "generation"
    await fill(store, ["a"])
    await store.check_integrity()
    await store.close()


async def test_damage_met_while_serving_is_a_fault_and_mended_at_the_next_start(path, caplog):
    store = await open_store(path)
    await fill(store, range(300), payload=bytes(3000))
    await store.close()
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 2, len(content), 4096):
        content[at // 4096 * 4096 : at // 4096 * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)

    store = await open_store(path)
    faults = 0
    for name in range(300):
        try:
            lookup = await store.get(key_of(str(name)), now=NOW)
        except StoreFault:
            faults += 1
        else:
            assert lookup.entry is None or lookup.entry.prompt == f"What is {name}?"
    assert faults > 0
    assert "is damaged" in caplog.text
    await store.close()

    store = await open_store(path)
    assert len(aside(path)) >= 1
    await fill(store, ["a"])
    await store.check_integrity()
    await store.close()
    store = await open_store(path)
    assert await present(store, ["a"]) == ["a"]
    await store.close()


async def test_corrupt_file_in_use_is_not_moved_from_under_others(path):
    store = await open_store(path)
    await fill(store, ["a"])
    before = path.read_bytes()
    path.write_bytes(b"garbage" + before[7:])
    with pytest.raises(StoreUnusable, match="other processes use it"):
        await open_store(path)
    assert aside(path) == []
    path.write_bytes(before)
    await store.close()


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
async def test_file_that_is_gone_from_its_place_serves_nothing_more(path, how):
    store = await open_store(path)
    await fill(store, ["a"])
    assert await present(store, ["a"])
    if how == "deleted":
        path.unlink()
    else:
        path.rename(path.with_name("elsewhere.db"))
    if how == "replaced":
        path.write_bytes(b"")
    # A purge that another process would not see is refused at once, a lookup at the next look.
    for call in (store.put(entry("b", None)), store.purge(Purge(everything=True), now=NOW)):
        with pytest.raises(StoreFault, match="moved or deleted"):
            await call
    async with asyncio.timeout(30):
        with pytest.raises(StoreFault, match="moved or deleted"):
            while True:
                await store.get(key_of("a"), now=NOW)
                await asyncio.sleep(0.01)
    await store.close()
