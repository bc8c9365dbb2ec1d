"""What several processes know of their tiers."""

import asyncio

import pytest

from index.audit.standing import WINDOW, label_field
from index.errors import StoreFault
from index.memory import MemoryStore
from proxy.auditing import ledger as ledger_file
from proxy.auditing.ledger import Ledger
from proxy.auditing.tier import mark_of, name_of, pair_of
from proxy.observing.metrics import Metrics
from proxy.settings.config import Policy, Store
from proxy.settings.semantic import Semantic
from proxy.storing import open_store

SEMANTIC = Semantic(max_error=0.2)


class Failing(MemoryStore):
    """Its counters cannot be reached now and then, or its reply gets lost."""

    fails = False
    loses_reply = False

    async def tally(self, name, add):
        if self.fails:
            raise StoreFault("away")
        totals = await super().tally(name, add)
        if self.loses_reply:
            raise StoreFault("late")
        return totals


@pytest.fixture
def store():
    return Failing(max_bytes=2**20)


async def ready(store, semantic=SEMANTIC):
    ledger = Ledger(store, metrics=Metrics())
    tier = ledger.tier("p", semantic, embedder="e")
    await ledger.refresh(tier)
    return ledger, tier


async def test_labels_of_two_processes_add_up_to_one_decision(store):
    (one, here), (other, there) = await ready(store), await ready(store)
    for _ in range(7):
        for tier in (here, there):
            tier.count_label(tier.standing, "stored_only", step=2)
    await one.refresh(here)
    assert here.standing.serves
    await other.refresh(there)
    assert not there.standing.serves
    await one.refresh(here)
    assert here.standing == there.standing


async def test_a_tier_that_no_config_has_any_more_is_not_shown(store):
    ledger, tier = await ready(store)
    ledger.tier("p", SEMANTIC, embedder="")
    await ledger.prepare({"p": Policy(ttl=3600, semantic=SEMANTIC)}, embedder="e")
    assert ledger.shown() == (tier,), "one of a policy, else its metrics come twice"
    await ledger.prepare({}, embedder="e")
    assert ledger.shown() == ()


async def test_before_the_store_has_told_nothing_is_known(store):
    store.fails = True
    ledger, tier = await ready(store)
    assert tier.standing is None
    assert ledger.shown() == ()
    store.fails = False
    await ledger.refresh(tier)
    assert tier.standing.serves


async def test_what_could_not_be_told_is_told_later(store):
    ledger, tier = await ready(store)
    store.fails = True
    tier.count_hit(tier.standing)
    await ledger.refresh(tier)
    assert tier.standing.hits == 0
    store.fails = False
    tier.count_hit(tier.standing)
    await ledger.refresh(tier)
    assert tier.standing.hits == 2


async def test_what_was_told_and_not_acknowledged_is_counted_once(store):
    ledger, tier = await ready(store)
    tier.count_label(tier.standing, "agree", step=2)
    store.loses_reply = True
    await ledger.refresh(tier)
    await ledger.refresh(tier)
    store.loses_reply = False
    tier.count_label(tier.standing, "agree", step=2)
    await ledger.refresh(tier)
    assert tier.standing.counts.agree == 2


async def test_a_telling_that_is_cancelled_is_counted_once(store):
    ledger, tier = await ready(store)
    go_on, begun = asyncio.Event(), asyncio.Event()
    tally = store.tally

    async def waits(name, add):
        begun.set()
        await go_on.wait()
        return await tally(name, add)

    store.tally = waits
    tier.count_label(tier.standing, "agree", step=2)
    telling = asyncio.create_task(ledger.refresh(tier))
    await begun.wait()
    telling.cancel()
    await asyncio.wait({telling})
    go_on.set()
    await ledger.refresh(tier)
    assert tier.standing.counts.agree == 1


async def test_of_too_many_wrong_pairs_the_oldest_are_forgotten_and_that_is_said_once(
    store, monkeypatch, caplog
):
    monkeypatch.setattr(ledger_file, "_MAX_PAIRS", 3)
    (one, here), (other, there) = await ready(store), await ready(store)
    marks = [mark_of(here, scope="s", one="a", other=str(number)) for number in range(5)]
    for mark in marks:
        here.refuse(mark.pair)
        await one.refresh(here)
    await other.refresh(there)
    assert set(there.wrong_pairs) == {mark.pair for mark in marks[2:]}
    assert len([line for line in caplog.messages if "oldest are forgotten" in line]) == 1


async def test_a_pair_that_one_process_refuses_is_refused_by_all(store):
    (one, here), (other, there) = await ready(store), await ready(store)
    mark = mark_of(here, scope="s", one="a", other="b")
    here.refuse(mark.pair)
    assert mark_of(here, scope="s", one="b", other="a") is None, "at once"
    assert mark_of(here, scope="another", one="a", other="b") is not None
    await one.refresh(here)
    await other.refresh(there)
    assert mark_of(there, scope="s", one="a", other="b") is None


async def test_a_pair_that_is_refused_while_the_others_are_read_stays_refused(store):
    ledger, tier = await ready(store)
    await store.tally(f"{tier.name}:pairs", {"another": 1})
    await store.tally(tier.name, {"pairs": 1})
    tally = store.tally

    async def refuses_meanwhile(name, add):
        totals = await tally(name, add)
        tier.refuse("this")
        return totals

    store.tally = refuses_meanwhile
    await ledger.refresh(tier)
    store.tally = tally
    assert tier.refuses("this")
    assert tier.refuses("another")
    await ledger.refresh(tier)
    assert set(tier.wrong_pairs) == {"this", "another"}


@pytest.mark.parametrize("fault", ["fails", "loses_reply"])
async def test_a_refusal_that_the_store_may_not_have_heard_reaches_the_others_later(store, fault):
    (one, here), (other, there) = await ready(store), await ready(store)
    here.refuse("pair")
    setattr(store, fault, True)
    await one.refresh(here)
    assert here.refuses("pair")
    setattr(store, fault, False)
    await one.refresh(here)
    await other.refresh(there)
    assert there.refuses("pair")


async def test_a_store_that_lost_everything_begins_anew(store):
    ledger, tier = await ready(store)
    for _ in range(20):
        tier.count_label(tier.standing, "stored_only", step=2)
    tier.refuse(pair_of("s", "a", "b"))
    await ledger.refresh(tier)
    assert not tier.standing.serves
    store._tallies.clear()
    await ledger.refresh(tier)
    assert tier.standing.serves
    assert tier.wrong_pairs == {}


def test_what_makes_other_hits_or_labels_makes_another_tier():
    name = name_of("p", SEMANTIC, embedder="e")
    assert name == name_of("p", Semantic(max_error=0.2, audit=0.5, candidates=3), embedder="e")
    others = [
        name_of("q", SEMANTIC, embedder="e"),
        name_of("p", SEMANTIC, embedder="f"),
        name_of("p", Semantic(max_error=0.3), embedder="e"),
        name_of("p", Semantic(max_error=0.2, profile="intent"), embedder="e"),
        name_of("p", Semantic(max_error=0.2, judge="equal"), embedder="e"),
    ]
    assert len({name, *others}) == 6


def test_the_name_of_a_pair_tells_neither_question():
    assert pair_of("s", "ab", "c") != pair_of("s", "a", "bc")
    assert "secret" not in pair_of("s", "secret", "c")


@pytest.fixture(params=["sqlite", "redis"])
def open_shared(request, tmp_path):
    """Opens the store that workers share, once for each of them."""
    if request.param == "sqlite":
        settings = Store(path=str(tmp_path / "store.db"))
    else:
        settings = Store(redis=request.getfixturevalue("empty_redis").url)
    return lambda: open_store(settings)


async def test_a_thousand_epochs_of_several_workers_leave_few_counters_in_their_store(open_shared):
    stores = [await open_shared() for _ in range(2)]
    workers = [await ready(store) for store in stores]
    most = 0
    for number in range(1000):
        ledger, tier = workers[number % 2]
        tier.count_hit(tier.standing)  # of an epoch that has ended meanwhile
        await ledger.refresh(tier)
        tier.pending[label_field(tier.standing, "agree", step=2)] += WINDOW
        await ledger.refresh(tier)
        most = max(most, len(tier.totals))
    for ledger, tier in workers:
        await ledger.refresh(tier)
    standing = tier.standing
    assert standing.epoch == 1000
    assert most < 20
    for store in stores:
        await store.close()
    again = await open_shared()
    _, restarted = await ready(again)
    assert restarted.standing == standing == workers[0][1].standing
    await again.close()
