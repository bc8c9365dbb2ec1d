"""What every store promises. One suite over all of them."""

import asyncio

import msgspec
import pytest
from sample_entries import NOW, entry, key_of

from index.errors import InvalidCursor, StoreFault
from index.memory import MemoryStore
from index.purges import RETAIN_S, table_of
from index.redis import RedisStore
from index.sqlite import SqliteStore
from index.store import Filter, Mark, NotStored, Purge, Stored
from index.tags import key_tag

MIB = 2**20


EMBEDDED = ["memory", "sqlite", "sqlite without a memory tier"]
REMOTE = ["redis", "redis without a memory tier", "redis with a filter", "redis cluster"]


def opener(kind, request):
    """What opens a store of this kind; again and again the same one, but for memory."""

    async def open_():
        memory_bytes = 0 if "without" in kind else 16 * MIB
        if kind == "memory":
            return MemoryStore(max_bytes=64 * MIB)
        if kind.startswith("sqlite"):
            path = request.getfixturevalue("tmp_path") / "store.db"
            return await SqliteStore.open(path, memory_bytes=memory_bytes, disk_bytes=64 * MIB)
        return await RedisStore.open(
            server.url,
            memory_bytes=memory_bytes,
            max_bytes=64 * MIB,
            filter_bytes=MIB if "filter" in kind else 0,
            deadline_s=30,
            patient_s=30,
        )

    if kind == "redis cluster":
        server = request.getfixturevalue("empty_cluster")[0]
    elif kind.startswith("redis"):
        server = request.getfixturevalue("empty_redis")
    return open_


@pytest.fixture(params=[*EMBEDDED, *REMOTE])
def open_store(request):
    return opener(request.param, request)


@pytest.fixture
async def store(open_store):
    store = await open_store()
    yield store
    await store.check_integrity()
    await store.close()


async def put(store, name, **changes):
    outcome = await store.put(entry(name, await store.snapshot(), **changes))
    assert isinstance(outcome, Stored)


async def reason(store, name, **options):
    return (await store.get(key_of(name), **{"now": NOW} | options)).reason


async def test_entry_that_was_put_comes_back_equal(store):
    stored = entry("a", await store.snapshot(), embedding=b"\x00\x01", scope=key_of("scope"))
    assert await store.put(stored) == Stored()
    for _ in range(2):
        lookup = await store.get(stored.key, now=NOW)
        assert lookup.entry == stored
        assert (lookup.reason, lookup.soft_purged) == ("fresh", False)


async def test_unknown_key_is_absent(store):
    assert await reason(store, "a") == "absent"
    assert (await store.get("no key at all", now=NOW)).reason == "absent"


@pytest.mark.parametrize("kind", EMBEDDED)
async def test_lookup_in_an_embedded_store_never_suspends(kind, request):
    store = await opener(kind, request)()
    await put(store, "a")
    for _ in range(2):
        for call in (store.get(key_of("a"), now=NOW), store.snapshot()):
            with pytest.raises(StopIteration):
                call.send(None)
    await store.close()


async def test_later_put_of_a_key_replaces_the_earlier(store):
    await put(store, "a", payload=b"old", extra_tags=("doc:1",))
    assert await reason(store, "a") == "fresh"
    await put(store, "a", payload=b"new")
    lookup = await store.get(key_of("a"), now=NOW)
    assert lookup.entry.payload == b"new"
    assert (await store.stats()).entries == 1
    page = await store.scan(Filter(tag="doc:1"), now=NOW, cursor=None, limit=10)
    assert page.entries == ()


async def test_entry_is_returned_stale_until_keep_until_then_expired(store):
    await put(store, "a")
    assert await reason(store, "a", now=NOW + 3601) == "fresh"
    assert await reason(store, "a", now=NOW + 7200) == "fresh"
    assert await reason(store, "a", now=NOW + 7200.5) == "expired"


async def test_request_with_a_tag_that_the_entry_lacks_is_a_miss_that_names_its_tags(store):
    await put(store, "a", extra_tags=("doc:1", "doc:2"))
    assert await reason(store, "a", tags=("doc:1",)) == "fresh"
    lookup = await store.get(key_of("a"), now=NOW, tags=("doc:2", "doc:3"))
    assert (lookup.entry, lookup.reason) == (None, "lacks_tag")
    assert lookup.tags == ("doc:1", "doc:2", "model:gpt-4o-mini", "tenant:acme")


@pytest.mark.parametrize(
    "purge",
    [
        Purge(tags=("doc:1",)),
        Purge(tags=("nothing", "doc:1")),
        Purge(keys=(key_of("a"),)),
        Purge(models=("gpt-4o-mini",)),
        Purge(tenants=("acme",)),
        Purge(tags=("tenant:acme",)),
        Purge(everything=True),
    ],
)
async def test_purge_covers_what_is_stored_and_what_is_being_made(store, purge):
    await put(store, "a", extra_tags=("doc:1",))
    await put(store, "other", tags=("model:other", "tenant:other", "doc:2"))
    assert await reason(store, "a") == "fresh"
    in_flight = entry("a", await store.snapshot(), extra_tags=("doc:1",))
    dry = await store.purge(msgspec.structs.replace(purge, dry_run=True), now=NOW)
    assert await reason(store, "a") == "fresh"
    purged = await store.purge(purge, now=NOW)

    assert await reason(store, "a") in ("purged", "absent")
    assert await store.put(in_flight) == NotStored(reason="purged")
    assert await reason(store, "other") == ("fresh" if not purge.everything else "absent")
    assert dry.matched == purged.matched == (2 if purge.everything else 1)
    assert (dry.entries, dry.sequence, purged.sequence) == (0, 0, 1)
    assert (await store.snapshot()).sequence == 1
    await put(store, "a", extra_tags=("doc:1",))
    assert await reason(store, "a") == "fresh"


async def test_tag_learned_from_the_answer_counts_from_the_requests_arrival(store):
    snapshot = (await store.get(key_of("a"), now=NOW)).snapshot
    await store.purge(Purge(tags=("learned",)), now=NOW)
    late = entry("a", snapshot, extra_tags=("learned",))
    assert await store.put(late) == NotStored(reason="purged")
    assert await store.put(entry("a", snapshot)) == Stored()


async def test_soft_purge_leaves_a_stale_entry_and_refuses_what_is_being_made(store):
    await put(store, "a", extra_tags=("doc:1",))
    in_flight = entry("b", await store.snapshot(), extra_tags=("doc:1",))
    purged = await store.purge(Purge(tags=("doc:1",), soft=True), now=NOW)
    assert (purged.matched, purged.entries) == (1, 0)
    lookup = await store.get(key_of("a"), now=NOW)
    assert (lookup.reason, lookup.soft_purged) == ("soft_purged", True)
    assert lookup.entry is not None
    assert await store.put(in_flight) == NotStored(reason="purged")
    assert await store.sweep(now=NOW) == 0
    assert await reason(store, "a") == "soft_purged"

    await store.purge(Purge(tags=("doc:1",)), now=NOW)
    assert await reason(store, "a") in ("purged", "absent")


async def test_entry_of_another_generation_is_not_stored(store):
    snapshot = await store.snapshot()
    foreign = msgspec.structs.replace(snapshot, generation="another")
    assert await store.put(entry("a", foreign)) == NotStored(reason="generation")
    ahead = msgspec.structs.replace(snapshot, sequence=snapshot.sequence + 1)
    assert await store.put(entry("a", ahead)) == NotStored(reason="generation")


async def test_entry_that_would_push_out_too_much_is_too_large(store):
    huge = entry("a", await store.snapshot(), payload=bytes(20 * MIB))
    assert await store.put(huge) == NotStored(reason="too_large")
    assert await reason(store, "a") == "absent"


async def test_delete_frees_one_entry(store):
    await put(store, "a")
    await put(store, "b")
    assert await reason(store, "a") == "fresh"
    assert await store.delete(key_of("a")) is True
    assert await store.delete(key_of("a")) is False
    assert (await reason(store, "a"), await reason(store, "b")) == ("absent", "fresh")


async def test_dry_run_counts_only_live_entries_and_each_once(store):
    await put(store, "both", extra_tags=("doc:1", "doc:2"))
    await put(store, "expired", extra_tags=("doc:1",), keep_until=NOW - 1)
    for number in range(70):  # more than a purge frees at once
        await put(store, f"purged {number}", extra_tags=("doc:1", "old"))
    await store.purge(Purge(tags=("old",)), now=NOW)
    await put(store, "new", extra_tags=("doc:1", "old"))
    asked = Purge(tags=("doc:1", "doc:2"), keys=(key_of("both"),), dry_run=True)
    assert (await store.purge(asked, now=NOW)).matched == 2
    everything = Purge(everything=True, dry_run=True)
    assert (await store.purge(everything, now=NOW)).matched == 2


async def test_sweep_frees_purged_and_expired_entries_and_only_those(store):
    for number in range(250):
        await put(store, f"purged {number}", extra_tags=("doc:1",))
    await put(store, "expired", keep_until=NOW + 5)
    await put(store, "kept")
    freed = (await store.purge(Purge(tags=("doc:1",)), now=NOW)).entries
    assert freed + await store.sweep(now=NOW + 10) == 251
    assert (await store.stats()).entries == 1
    assert await reason(store, "kept", now=NOW + 10) == "fresh"
    assert await store.sweep(now=NOW + 10) == 0


async def test_purges_are_forgotten_once_swept_and_what_missed_them_is_refused(store):
    await put(store, "soft", extra_tags=("soft",), keep_until=NOW + 10 * RETAIN_S)
    early = entry("early", await store.snapshot(), extra_tags=("doc:1",))
    await store.purge(Purge(tags=("doc:1",)), now=NOW)
    await store.purge(Purge(tags=("soft",), soft=True), now=NOW)
    await store.sweep(now=NOW + RETAIN_S + 1)
    assert await store.put(early) == NotStored(reason="purged")
    lookup = await store.get(key_of("soft"), now=NOW + RETAIN_S + 1)
    assert lookup.soft_purged
    await store.sweep(now=NOW + 11 * RETAIN_S)
    assert (await store.stats()).entries == 0
    assert await store.put(early) == NotStored(reason="purged")
    await put(store, "new", extra_tags=("doc:1", "soft"))
    assert await reason(store, "new") == "fresh"


async def test_scan_shows_live_entries_newest_first_by_pages(store):
    for number in range(5):
        await put(store, f"doc {number}", extra_tags=("doc",), scope=key_of("scope"))
    await put(store, "model", model="other")
    await put(store, "tenant", tenant="other")
    await put(store, "expired", keep_until=NOW - 1)
    await put(store, "purged", extra_tags=("gone",))
    await store.purge(Purge(tags=("gone",)), now=NOW)

    async def names(where, limit=100):
        found, cursor = [], None
        while True:
            page = await store.scan(where, now=NOW, cursor=cursor, limit=limit)
            assert len(page.entries) <= limit
            found += [one.prompt[8:-1] for one in page.entries]
            cursor = page.cursor
            if cursor is None:
                return found

    docs = [f"doc {number}" for number in reversed(range(5))]
    for limit in (1, 2, 5, 100):
        assert await names(Filter(tag="doc"), limit) == docs
    assert await names(Filter()) == ["tenant", "model", *docs]
    assert await names(Filter(model="other")) == ["model"]
    assert await names(Filter(tenant="other")) == ["tenant"]
    assert await names(Filter(scope=key_of("scope"), text="doc 3")) == ["doc 3"]
    assert await names(Filter(tag="nothing")) == []


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1 ", "\u0661", "9" * 30])
async def test_a_cursor_that_no_scan_gave_is_refused(store, cursor):
    with pytest.raises(InvalidCursor):
        await store.scan(Filter(), now=NOW, cursor=cursor, limit=1)


async def follow(store, cursor, known, limit=3):
    """Follow the feed to its end, as an index would."""
    while True:
        changes = await store.changes(cursor, limit=limit)
        assert not changes.reset
        for key in changes.deleted:
            known.pop(key, None)
        known.update({one.key: one.payload for one in changes.put})
        if changes.cursor == cursor:
            return cursor
        cursor = changes.cursor


async def test_follower_of_the_feed_knows_exactly_what_is_stored(store):
    known = {}
    assert await follow(store, 0, known) == 0
    for number in range(10):
        await put(store, str(number))
    await store.delete(key_of("0"))
    cursor = await follow(store, 0, known)
    assert set(known) == {key_of(str(number)) for number in range(1, 10)}

    await put(store, "1", payload=b"again")
    await store.delete(key_of("2"))
    await put(store, "2", payload=b"back")
    await store.delete(key_of("3"))
    await put(store, "4", extra_tags=("gone",))
    await store.purge(Purge(tags=("gone",)), now=NOW)
    await store.sweep(now=NOW)
    cursor = await follow(store, cursor, known)
    assert set(known) == {key_of(str(number)) for number in (1, 2, 5, 6, 7, 8, 9)}
    assert (known[key_of("1")], known[key_of("2")]) == (b"again", b"back")
    assert await follow(store, cursor, known) == cursor


async def test_entry_deleted_while_a_follower_reads_its_first_pages_is_deleted_for_it(store):
    for number in range(10):
        await put(store, str(number))
    known = {}
    first = await store.changes(0, limit=4)
    known.update({one.key: one.payload for one in first.put})
    await store.delete(key_of("1"))
    await store.delete(key_of("8"))
    await put(store, "new")
    await follow(store, first.cursor, known)
    expected = {str(number) for number in (0, 2, 3, 4, 5, 6, 7, 9)} | {"new"}
    assert set(known) == {key_of(name) for name in expected}


async def test_cursor_from_the_future_is_reset(store):
    await put(store, "a")
    assert (await store.changes(99, limit=10)).reset


async def test_closed_store_faults_and_closes_again_in_peace(open_store):
    store = await open_store()
    snapshot = await store.snapshot()
    await put(store, "a")
    await store.close()
    await store.close()
    for call in (
        store.get(key_of("a"), now=NOW),
        store.snapshot(),
        store.put(entry("a", snapshot)),
        store.delete(key_of("a")),
        store.purge(Purge(everything=True), now=NOW),
        store.purge(Purge(everything=True, dry_run=True), now=NOW),
        store.scan(Filter(), now=NOW, cursor=None, limit=1),
        store.changes(0, limit=1),
        store.sweep(now=NOW),
    ):
        with pytest.raises(StoreFault):
            await call


async def test_a_tally_of_nothing_is_empty(store):
    assert await store.tally("n", {}) == {}


async def test_a_tally_adds_up_by_name_and_field(store):
    assert await store.tally("n", {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert await store.tally("n", {"b": 3}) == {"a": 1, "b": 5}
    assert await store.tally("n", {}) == {"a": 1, "b": 5}
    assert await store.tally("other", {"a": 7}) == {"a": 7}


async def test_a_counter_that_comes_to_nothing_is_forgotten(store):
    await store.tally("n", {"a": 3, "b": 1, "c": 1})
    assert await store.tally("n", {"a": -3, "b": -2}) == {"c": 1}
    assert await store.tally("n", {"a": 1}) == {"a": 1, "c": 1}


async def test_a_tally_outlives_purges_and_sweeps(store):
    await put(store, "a")
    await store.tally("n", {"a": 1})
    await store.purge(Purge(everything=True), now=NOW)
    await store.sweep(now=NOW + RETAIN_S)
    assert await store.tally("n", {}) == {"a": 1}


async def test_a_tally_counts_what_many_add_at_once(store):
    await asyncio.gather(*(store.tally("n", {"a": 1, str(i % 3): 1}) for i in range(30)))
    assert await store.tally("n", {}) == {"a": 30, "0": 10, "1": 10, "2": 10}


async def test_a_tally_is_shared_by_all_and_outlives_those_who_made_it(open_store):
    first = await open_store()
    if isinstance(first, MemoryStore):
        await first.close()
        return
    second = await open_store()
    await first.tally("n", {"a": 1})
    await second.tally("n", {"a": 2})
    assert await first.tally("n", {}) == {"a": 3}
    await first.close()
    await second.close()
    third = await open_store()
    assert await third.tally("n", {}) == {"a": 3}
    await third.close()


async def test_a_tally_of_a_closed_store_is_a_fault(open_store):
    store = await open_store()
    await store.close()
    with pytest.raises(StoreFault):
        await store.tally("n", {"a": 1})


async def test_what_was_purged_softly_is_examined_with_the_purges_that_moved(store):
    await put(store, "a", extra_tags=("doc:1", "doc:2"))
    await store.purge(Purge(tags=("doc:1",), soft=True), now=NOW)
    await store.purge(Purge(tags=("doc:9",)), now=NOW)
    examined = await store.examine(key_of("a"), tags=("doc:9", "doc:8"))
    assert examined.entry == entry("a", examined.entry.snapshot, extra_tags=("doc:1", "doc:2"))
    assert examined.snapshot == await store.snapshot()
    assert examined.marks == {"doc:1": Mark(0, 1), "doc:9": Mark(2, 0)}
    assert table_of(examined).standing(examined.entry) == "soft_purged"


async def test_what_was_freed_is_examined_by_the_tags_that_are_asked_for(store):
    await put(store, "a", extra_tags=("doc:1",))
    await store.purge(Purge(tags=("doc:1",), keys=(key_of("a"),)), now=NOW)
    examined = await store.examine(key_of("a"), tags=("doc:1",))
    assert examined.entry is None
    assert examined.marks == {"doc:1": Mark(1, 0), key_tag(key_of("a")): Mark(1, 0)}


@pytest.mark.parametrize("kind", EMBEDDED)
async def test_examining_an_entry_counts_as_no_use_of_it(kind, request):
    store = await opener(kind, request)()
    await put(store, "a")
    await store.examine(key_of("a"))
    assert not getattr(store, "_uses", {})
    assert all(held.ranked.uses == 1 for held in store._tier.oldest_first())
    await store.close()


async def test_a_scrubbed_store_says_so(store):
    await put(store, "a")
    await store.purge(Purge(everything=True), now=NOW)
    await store.sweep(now=NOW)
    assert await store.scrub()
