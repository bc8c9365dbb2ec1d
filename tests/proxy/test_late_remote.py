"""Embeddings that come behind their deadline from a server, while other things happen."""

import asyncio
import zlib
from contextlib import AsyncExitStack, asynccontextmanager
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import NamedTuple

import httpx
import pytest
import pytest_asyncio
from embedding_server import Embedder
from misbehaving import plain, serving
from running import completion, running

from index.embedders import remote_embedder
from proxy.lookup.late import MAX_LATE

pytestmark = pytest.mark.asyncio(loop_scope="module")

FIRST = "How do I renew the basic plan?"
AGAIN = "how do i renew the basic plan"
OTHER = "Which floor is the canteen on?"
OTHER_AGAIN = "which floor is the canteen on"
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  main: {{base_url: "{upstream}/v1"}}
embedder: {{model: test-1, base_url: "{embedder}/v1", dimensions: 32}}
store: {{path: "{folder}/store.db"}}
policies:
  standard:
    ttl: 1h
    semantic: {{threshold: 0.9, audit: 0, deadline: 20ms}}
    volatile: {{classifier: false}}
routes:
  - {{match: {{model: "test-*"}}, to: main, cache: standard, retries: 0}}
"""


class Caseless(Embedder):
    """Has one vector for all cases of a text, and can be told to wait."""

    def answer(self, body, pieces):
        return super().answer(body, [piece.casefold().strip("?") for piece in pieces])

    def hold(self):
        self.go_on = asyncio.Event()

    def let_go(self):
        self.go_on.set()
        self.go_on = None


class Upstream:
    """Says which of its answers it is, and whose; waits where it is held."""

    def __init__(self):
        self.asked = 0
        self.arrived = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.headers = ()

    async def __call__(self, request, writer):
        self.asked += 1
        key = request.header("authorization").removeprefix("Bearer ")
        text = f"{self.asked} for {key}"
        self.arrived.set()
        await self.go_on.wait()
        writer.write(plain(completion(text), headers=self.headers))

    def hold(self):
        self.arrived.clear()
        self.go_on.clear()


class Stage:
    """A proxy between an embedder and an upstream, both of which can be held."""

    def __init__(self, proxy, embedder, upstream):
        self.proxy = proxy
        self.embedder = embedder
        self.upstream = upstream
        self.cache = proxy.proxy._cache
        self.key = "sk-one"

    def for_test(self, name):
        """Nothing is held, and nobody has asked yet under the test's own key."""
        self.key = f"sk-{zlib.crc32(name.encode())}"
        self.embedder.go_on, self.embedder.status = None, "200 OK"
        self.upstream.asked, self.upstream.headers = 0, ()
        self.upstream.go_on.set()
        return self

    async def ask(self, text, *, key=None, **more):
        """Outcome, and which answer it was."""
        return said(await self.proxy.ask(text, key=key or self.key, **more))

    def hold(self):
        """Embeddings and answers wait."""
        self.cache.semantic.forget()
        self.embedder.hold()
        self.upstream.hold()

    async def begin(self, text=FIRST, **more):
        """A request whose embedding is late, and which waits for its answer."""
        self.hold()
        asked = asyncio.create_task(self.ask(text, **more))
        await self.upstream.arrived.wait()
        assert self.num_late == 1
        return asked

    async def embed(self):
        """The late embeddings come."""
        self.embedder.let_go()
        await self.none_is_late()

    async def finish(self, asked):
        """The answer comes."""
        self.upstream.go_on.set()
        return await asked

    @property
    def num_late(self):
        return len(self.cache._late)

    async def until(self, holds):
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.001)

    async def none_is_late(self):
        await self.until(lambda: self.num_late == 0)

    async def in_time(self):
        """Embeddings come in time from here on, however slow the machine."""
        self.embedder.go_on = None
        await self.until(lambda: not self.cache.semantic.away)
        for text in (FIRST, AGAIN, OTHER_AGAIN):
            await self.cache.semantic.search("", text, limit=1)


@asynccontextmanager
async def stage(folder):
    embedder, upstream = Caseless(), Upstream()
    async with AsyncExitStack() as stack:
        embedding = await stack.enter_async_context(serving(embedder))
        answering = await stack.enter_async_context(serving(upstream))
        text = CONFIG.format(upstream=answering.url, embedder=embedding.url, folder=folder)
        proxy = await stack.enter_async_context(running(text, folder))
        made = Stage(proxy, embedder, upstream)
        await made.until(lambda: proxy.proxy.health.embedder == "ready")
        yield made


@pytest.fixture(scope="module")
def settings():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_embedder, "_FIRST_PAUSE_S", 0.01)
        yield patch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    settings.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    async with stage(folder) as made:
        yield made


@pytest.fixture
def s(shared, request):
    return shared.for_test(request.node.name)


def said(answer):
    assert answer.status_code == 200, answer.text
    outcome = answer.headers["x-cache"]
    number, _, key = answer.json()["choices"][0]["message"]["content"].split()
    return Said(outcome, int(number), key)


class Said(NamedTuple):
    outcome: str
    number: int
    key: str


PLANS = ["plans"]
TAGGED = {"headers": {"x-cache-tags": "plans"}}


async def test_a_late_embedding_makes_an_answer_findable(s):
    """Else the tests below would pass where nothing is ever found."""
    asked = await s.begin(**TAGGED)
    await s.embed()
    assert await s.finish(asked) == ("miss", 1, s.key)
    await s.in_time()
    assert await s.ask(AGAIN) == ("semantic", 1, s.key)


@pytest.mark.parametrize("order", ["purge embed answer", "embed purge answer",
                                   "purge answer embed", "answer purge embed"])  # fmt: skip
@pytest.mark.parametrize("what", ["tag of the request", "tag of the answer", "everything"])
async def test_a_purge_before_a_late_embedding_is_used_leaves_nothing_to_find(s, order, what):
    by_answer = what == "tag of the answer"
    s.upstream.headers = ("cache-tag: plans",) if by_answer else ()
    asked = await s.begin(**({} if by_answer else TAGGED))
    for step in order.split():
        match step:
            case "purge":
                await s.proxy.purge(**({"all": True} if what == "everything" else {"tags": PLANS}))
            case "embed":
                await s.embed()
            case "answer":
                assert await s.finish(asked) == ("miss", 1, s.key)
    await s.in_time()
    assert await s.ask(AGAIN) == ("miss", 2, s.key)
    assert await s.ask(FIRST) == ("semantic", 2, s.key)


async def test_a_purge_between_storing_and_indexing_leaves_nothing_to_find(s):
    asked = await s.begin(**TAGGED)
    await s.embed()
    s.cache._store = PurgedMeanwhile(s, s.cache._store)
    await s.finish(asked)
    s.cache._store = s.cache._store.store
    await s.in_time()
    assert await s.ask(AGAIN) == ("miss", 2, s.key)


class PurgedMeanwhile:
    def __init__(self, stage, store):
        self.stage = stage
        self.store = store

    async def put(self, entry):
        done = await self.store.put(entry)
        await self.stage.proxy.purge(tags=PLANS)
        return done


async def test_tenants_who_ask_the_same_at_once_find_their_own_answers_alone(s):
    keys = [f"{s.key}-{number}" for number in range(3)]
    s.hold()
    asked = [asyncio.create_task(s.ask(FIRST, key=key)) for key in keys]
    await s.until(lambda: s.upstream.asked == len(keys))
    await s.embed()
    s.upstream.go_on.set()
    first = await asyncio.gather(*asked)
    assert [one.key for one in first] == keys
    await s.in_time()
    again = [await s.ask(AGAIN, key=key) for key in keys]
    assert again == [one._replace(outcome="semantic") for one in first]
    assert await s.ask(AGAIN) == ("miss", 4, s.key)


async def test_clients_that_leave_take_their_late_embeddings_with_them(s):
    s.hold()
    leaving = [
        asyncio.create_task(s.ask(f"What is the colour of {number}?")) for number in range(MAX_LATE)
    ]
    await s.until(lambda: s.num_late == s.upstream.asked == MAX_LATE)
    for one in leaving:
        one.cancel()
    await asyncio.wait(leaving)
    await s.none_is_late()
    asked = asyncio.create_task(s.ask(OTHER))
    await s.until(lambda: s.upstream.asked > MAX_LATE)
    await s.embed()
    await s.finish(asked)
    await s.in_time()
    assert (await s.ask(OTHER_AGAIN)).outcome == "semantic"


async def test_who_joins_an_answer_holds_no_place_among_the_late(s):
    first = await s.begin()
    joining = [asyncio.create_task(s.ask(FIRST)) for _ in range(3)]
    await s.until(lambda: len(s.proxy.proxy.listeners()) == 4)
    await s.until(lambda: s.num_late == 1)
    await s.embed()
    await s.finish(first)
    assert {(await one).outcome for one in joining} == {"coalesced"}
    await s.in_time()
    assert await s.ask(AGAIN) == ("semantic", 1, s.key)


async def test_who_takes_stored_answers_alone_leaves_nothing_late_behind(s):
    s.hold()
    headers = {"cache-control": "only-if-cached"}
    refused = await s.proxy.ask(FIRST, key=s.key, headers=headers)
    assert refused.status_code == 504
    await s.none_is_late()


async def test_an_embedder_that_fails_late_costs_meaning_and_no_answer(s):
    asked = await s.begin()
    s.embedder.status = "500 Internal Server Error"
    await s.embed()
    assert s.cache.semantic.away
    assert await s.finish(asked) == ("miss", 1, s.key)
    assert await s.ask(FIRST) == ("exact", 1, s.key)
    s.embedder.status = "200 OK"
    await s.in_time()
    assert await s.ask(AGAIN) == ("miss", 2, s.key), "the first is kept under its own words"


async def test_an_end_while_an_embedding_is_late_costs_no_answer(settings, tmp_path):
    settings.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with httpx.AsyncClient(timeout=60, verify=SSLContext(PROTOCOL_TLS_CLIENT)) as http:
        async with stage(tmp_path) as s:
            s.proxy.http = http
            finishing = asyncio.create_task(answer_at_the_end(s, await s.begin()))
        assert await finishing == ("miss", 1, "sk-one")
    async with stage(tmp_path) as s:
        assert await s.ask(FIRST) == ("exact", 1, "sk-one")


async def answer_at_the_end(s, asked):
    await s.until(lambda: s.proxy.proxy.health.draining)
    return await s.finish(asked)
