"""A replay: each request as it comes, through the decisions and the lookups of the request path,
against a store in memory whose clock is the log's."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import msgspec

from index.audit.standing import RAISE
from index.entry import Entry as Stored
from index.memory import MemoryStore
from index.semantic import Semantic
from index.tags import union
from index.verdict import Refused, judge, raised_by
from index.volatility.examples import Learned
from proxy.analyzing.embedded import Embedded, NotEmbedded
from proxy.analyzing.exact import Judged, expiry
from proxy.analyzing.reading import Entry
from proxy.analyzing.report import Near
from proxy.call import Usage
from proxy.deciding import Decider
from proxy.errors import ClientError
from proxy.lookup.cache import Cache
from proxy.lookup.found import Found
from proxy.observing.metrics import Metrics
from proxy.observing.prices import Prices, cost
from proxy.outcome import ExactHit, SemanticHit
from proxy.question import Question
from proxy.settings.units import Duration
from proxy.tenancy.quotas import guess_tokens

_STORE_BYTES = 2**40
"""Nothing is evicted: what a policy brings, not what a disk holds."""
_PATIENCE_S = 600.0


class Tally:
    """Of one policy."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.judged: list[Judged] = []
        """Those that the cache has a part in."""
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.saved = Usage()
        self.money: defaultdict[str, float] = defaultdict(float)
        self.meant: list[Near] = []
        """The hits by meaning."""
        self.doubtful: list[Near] = []
        """Those that would not stand if a little more similarity were asked for."""

    @property
    def hits(self) -> int:
        """In the same words and by meaning."""
        return self.outcomes["exact"] + self.outcomes["semantic"]


class Replay:
    """One log against one config. Feed it in the order in which the requests came."""

    def __init__(
        self, decider: Decider, *, prices: Prices, semantic: Semantic, learned: Learned
    ) -> None:
        self._decider = decider
        self._prices = prices
        self._now = 0.0
        self._store = MemoryStore(max_bytes=_STORE_BYTES)
        self._cache = Cache(
            self._store,
            metrics=Metrics(),
            clock=lambda: self._now,
            random=lambda: 0.0,
        )
        self._cache.semantic, self._cache.learned = semantic, learned
        self.tallies: dict[str, Tally] = {}
        self.num_uncached = 0

    async def take(self, entry: Entry) -> None:
        """The next request."""
        self._now = entry.call.received_at
        try:
            question = self._decider.decide(entry.call)
        except ClientError:
            self.num_uncached += 1
            return
        name = question.route.policy_name
        if name is None:
            self.num_uncached += 1
            return
        tally = self.tallies.setdefault(name, Tally())
        tally.entries.append(entry)
        if question.fingerprint is None:
            tally.outcomes["bypass"] += 1
            tally.reasons.update(question.eligibility.reasons)
            return
        tally.judged.append(Judged(question=question, now=self._now))
        await self._look_up(_patient(question), entry, tally)

    async def close(self) -> None:
        """Let go of what was kept; the tallies stay."""
        await self._store.close()

    async def _look_up(self, question: Question, entry: Entry, tally: Tally) -> None:
        found = await self._cache.find(question)
        if found.barred is not None:
            tally.outcomes["bypass"] += 1
            tally.reasons[found.barred] += 1
            return
        hit = found.hit
        if hit is None:
            tally.outcomes["miss"] += 1
            tally.reasons.update(found.reasons or ("no_cache",))
            await self._keep(question, found, entry)
            return
        tally.outcomes["exact" if isinstance(hit, ExactHit) else "semantic"] += 1
        self._save(hit.entry, question, tally)
        if isinstance(hit, SemanticHit):
            near = _near(question, hit)
            tally.meant.append(near)
            if _is_doubtful(question, near):
                tally.doubtful.append(near)

    async def _keep(self, question: Question, found: Found, entry: Entry) -> None:
        if not question.eligibility.write or found.snapshot is None:
            return
        fingerprint, policy, call = question.fingerprint, question.route.policy, question.call
        assert fingerprint is not None
        assert policy is not None
        ends = expiry(call, policy, now=self._now)
        input_tokens = entry.input_tokens or guess_tokens(call.body, {})
        by_meaning = question.eligibility.semantic and bool(fingerprint.scope and found.embedding)
        stored = Stored(
            key=fingerprint.key,
            scope=fingerprint.scope if by_meaning else "",
            tenant=call.caller.tenant,
            policy=question.route.policy_name or "",
            upstream=question.route.upstreams[0].name,
            model=question.route.model,
            surface=call.surface.value,
            prompt=fingerprint.prompt if by_meaning else "",
            canonical=fingerprint.canonical,
            payload=b"",
            tags=union(question.tags),
            snapshot=found.snapshot,
            created_at=self._now,
            expires_at=ends,
            keep_until=ends,
            input_tokens=input_tokens,
            output_tokens=entry.output_tokens,
            embedder=self._cache.embedder if by_meaning else "",
            embedding=found.embedding if by_meaning else b"",
        )
        await self._cache.keep(stored)

    def _save(self, stored: Stored, question: Question, tally: Tally) -> None:
        usage = Usage(input_tokens=stored.input_tokens, output_tokens=stored.output_tokens)
        tally.saved = Usage(
            input_tokens=tally.saved.input_tokens + usage.input_tokens,
            output_tokens=tally.saved.output_tokens + usage.output_tokens,
        )
        price = self._prices.of(stored.model, question.call.model)
        if price is not None:
            tally.money[price.currency] += cost(price, usage)


async def replay(
    entries: Iterable[Entry],
    decider: Decider,
    *,
    prices: Prices,
    embedded: Embedded | NotEmbedded,
    advance: Callable[[int], None],
) -> Replay:
    """A log, from an empty cache on. `advance`: after each request."""
    async with embedded.index() as semantic:
        made = Replay(decider, prices=prices, semantic=semantic, learned=embedded.learned)
        try:
            for entry in entries:
                await made.take(entry)
                advance(1)
        finally:
            await made.close()
    return made


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """As they came: a log of several workers is only nearly so."""
    return sorted(entries, key=lambda entry: entry.call.received_at)


def _patient(question: Question) -> Question:
    """The deadline is the request path's; here nobody waits."""
    policy = question.route.policy
    if policy is None or policy.semantic is None:
        return question
    semantic = msgspec.structs.replace(policy.semantic, deadline=Duration(_PATIENCE_S))
    policy = msgspec.structs.replace(policy, semantic=semantic)
    route = msgspec.structs.replace(question.route, policy=policy)
    return msgspec.structs.replace(question, route=route)


def _is_doubtful(question: Question, near: Near) -> bool:
    assert question.rules is not None
    rules = raised_by(question.rules, RAISE)
    verdict = judge(near.asked, near.stored, similarity=near.similarity, rules=rules)
    return isinstance(verdict, Refused)


def _near(question: Question, hit: SemanticHit) -> Near:
    assert question.fingerprint is not None
    asked = question.fingerprint.prompt
    return Near(asked=asked, stored=hit.entry.prompt, similarity=hit.similarity)
