"""The figures of engines, as metrics show them."""

import asyncio

import pytest

from index.memory import MemoryStore
from index.store import Purge
from proxy.errors import UpstreamTimeout
from proxy.kept import Kept


class Engine:
    """The one method of an upstream that is asked here."""

    async def figures(self):
        return {"steps": 7}


class Hung:
    """An engine that takes a question and does not answer."""

    async def purge(self, _purge):
        await asyncio.Event().wait()


def steps(kept):
    return [
        sample.value
        for family in kept.collect()
        for sample in family.samples
        if sample.name == "rejoinder_engine_steps"
    ]


async def test_whoever_only_looks_at_an_engine_does_not_show_it_in_its_metrics():
    # Several workers share an engine: were all to show it, sums would have it several times.
    kept = Kept(lambda: {"local": Engine()}, store=MemoryStore(max_bytes=1024))
    assert await kept.figures() == {"local": {"steps": 7}}
    assert steps(kept) == []
    await kept.hear()
    assert steps(kept) == [7]


async def test_a_purge_says_which_engine_has_not_confirmed_it(monkeypatch):
    monkeypatch.setattr("proxy.kept.PURGE_PATIENCE_S", 0.01)
    store = MemoryStore(max_bytes=1024)
    done = await store.purge(Purge(everything=True), now=0.0)
    with pytest.raises(UpstreamTimeout, match=r"upstream local .* the answers are"):
        await Kept(lambda: {"local": Hung()}, store=store).purge(Purge(everything=True), done)
