"""Faults put into the proxy on purpose, each of which the interleavings must find: what holds there
is then no accident of the test."""

import logging

import msgspec
import pytest
from interleaving import World, read_config, violations
from pausing import open_stores

from index.memory import MemoryStore
from index.store import Lookup
from proxy.lookup.servable import rescue
from proxy.lookup.trial import Trial
from proxy.misses.flights import Flights
from proxy.misses.keeping import Keeper
from proxy.outcome import SemanticHit
from proxy.pipeline import Pipeline
from proxy.reply import Answer

MAX_SEEDS = 1500


@pytest.fixture(autouse=True)
def no_warnings_logged():
    """Upstreams fail here by the hundred."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def capture_behind_the_upstream(patch):
    """The number of purges is read when the answer is kept, not when its request came."""
    keep = Keeper.keep

    async def late(self, question, found, response, recording):
        if found.snapshot is not None:
            snapshot = await self._cache._store.snapshot()
            found = msgspec.structs.replace(found, snapshot=snapshot)
        return await keep(self, question, found, response, recording)

    patch.setattr(Keeper, "keep", late)


def a_store_that_forgets_purges(patch):
    """What was put is found, whatever was purged since."""
    get, put = MemoryStore.get, MemoryStore.put
    entries = {}

    async def careless_put(self, entry):
        entries[entry.key] = entry
        return await put(self, entry)

    async def careless_get(self, key, **more):
        lookup = await get(self, key, **more)
        if lookup.entry is None and key in entries:
            return Lookup(snapshot=lookup.snapshot, entry=entries[key], reason="fresh")
        return lookup

    patch.setattr(MemoryStore, "put", careless_put)
    patch.setattr(MemoryStore, "get", careless_get)


def a_store_that_forgets_soft_purges(patch):
    """A soft purge leaves what it covers as fresh as before."""
    get = MemoryStore.get

    async def careless(self, key, **more):
        return msgspec.structs.replace(await get(self, key, **more), soft_purged=False)

    patch.setattr(MemoryStore, "get", careless)


def a_store_that_keeps_what_was_purged_meanwhile(patch):
    """`put` carries the purges of now, not those that the request saw."""
    put = MemoryStore.put

    async def careless(self, entry):
        snapshot = await self.snapshot()
        return await put(self, msgspec.structs.replace(entry, snapshot=snapshot))

    patch.setattr(MemoryStore, "put", careless)


def a_store_that_ignores_the_tags_of_the_request(patch):
    """An entry without them is found all the same."""
    get = MemoryStore.get

    async def careless(self, key, *, now, tags=()):
        return await get(self, key, now=now)

    patch.setattr(MemoryStore, "get", careless)


def flights_joined_across_purges(patch):
    """Who asks after a purge listens to what began before it."""
    join = Flights.join

    def careless(self, key, *, snapshot, tags):
        flight = self._open.get(key)
        return join(self, key, snapshot=flight.snapshot if flight else snapshot, tags=tags)

    patch.setattr(Flights, "join", careless)


def a_rescue_from_before(patch):
    """Served is what was found before the upstream failed; it may have been purged since."""

    async def careless(self, question, found):
        hit = rescue(question, found)
        reply = hit and self._answering.from_entry(hit.entry, question.call)
        return reply and Answer(reply=reply, outcome=hit)

    patch.setattr(Pipeline, "_rescued", careless)


def semantic_hits_that_are_not_looked_up(patch):
    """The index's word is taken for it that an entry is still there."""

    async def careless(self, candidate):
        entry = self._semantic.entries[candidate.key]
        return SemanticHit(entry=entry, age_s=0, ttl_s=1, similarity=candidate.similarity)

    patch.setattr(Trial, "_confirmed", careless)


@pytest.mark.parametrize(
    "mutate",
    [
        capture_behind_the_upstream,
        a_store_that_forgets_purges,
        a_store_that_forgets_soft_purges,
        a_store_that_keeps_what_was_purged_meanwhile,
        a_store_that_ignores_the_tags_of_the_request,
        flights_joined_across_purges,
        a_rescue_from_before,
        semantic_hits_that_are_not_looked_up,
    ],
)
async def test_a_fault_put_in_on_purpose_is_found(mutate, monkeypatch, tmp_path):
    config = read_config(tmp_path)
    mutate(monkeypatch)
    async with open_stores("memory", tmp_path) as stores:
        for seed in range(MAX_SEEDS):
            if await violations(World(config, stores, seed)):
                return
    pytest.fail(f"{mutate.__name__}: {mutate.__doc__} Nothing was violated by it.")
