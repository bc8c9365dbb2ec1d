"""The replay: each request as it comes, through the decisions and the lookups of the request
path, against a store in memory whose clock is the log's."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from index.audit.standing import RAISE
from index.entry import Entry as Stored
from index.memory import MemoryStore
from index.semantic import NoSemantic, Semantic
from index.tags import union
from index.verdict import Refused, judge, raised_by
from index.volatility_examples import Learned, NothingLearned
from proxy.analyzing.candidates import Candidate, candidates_for, with_all
from proxy.analyzing.exact import Judged, exact_hits, expiry
from proxy.analyzing.proposal import diff_of
from proxy.analyzing.reading import Entry
from proxy.analyzing.report import Gain, Near, PolicyReport
from proxy.cache import Cache
from proxy.call import Usage
from proxy.deciding import Decider
from proxy.errors import ClientError
from proxy.found import Found
from proxy.metrics import Metrics
from proxy.observing.prices import Prices, cost
from proxy.outcome import ExactHit, SemanticHit
from proxy.question import Question
from proxy.quotas import guess_tokens
from proxy.settings.config import Config, Policy
from proxy.settings.units import Duration

_STORE_BYTES = 2**40
"""Nothing is evicted: what a policy brings, not what a disk holds."""
_PATIENCE_S = 600.0
_MAX_DOUBTFUL = 10
_LEAST_SHARE = 0.005
"""A change that brings less is not proposed."""


class Tally:
    """Of one policy."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.saved = Usage()
        self.money: defaultdict[str, float] = defaultdict(float)
        self.doubtful: list[Near] = []
        self.judged: list[Judged] = []


class Analysis:
    """One log against one config. Feed it in the order in which the requests came."""

    def __init__(
        self,
        config: Config,
        decider: Decider,
        *,
        semantic: Semantic | None,
        learned: Learned | None = None,
    ) -> None:
        """`semantic`, `learned`: None where nothing is looked for by meaning. `decider`: of
        `config`."""
        self._config = config
        self._decider = decider
        self._prices = Prices(config.prices)
        self._store = MemoryStore(max_bytes=_STORE_BYTES)
        self._now = 0.0
        self._cache = Cache(
            self._store, metrics=Metrics(), clock=lambda: self._now, random=lambda: 0.0
        )
        self._cache.semantic = semantic or NoSemantic()
        self._cache.learned = learned or NothingLearned()
        self._tallies: dict[str, Tally] = {}
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
        tally = self._tallies.setdefault(name, Tally())
        if question.fingerprint is None:
            tally.outcomes["bypass"] += 1
            tally.reasons.update(question.eligibility.reasons)
            return
        tally.judged.append(Judged(question=question, now=self._now))
        await self._look_up(_patient(question), entry, tally)

    def reports(
        self, written: Mapping[str, dict[str, Any]], *, advance: Callable[[int], None]
    ) -> tuple[PolicyReport, ...]:
        """`written`: the policies as their file has them. `advance`: after each change that was
        tried."""
        return tuple(
            self._report(name, tally, written.get(name, {}), advance)
            for name, tally in self._tallies.items()
        )

    def num_changes(self) -> int:
        """That `reports` will try."""
        policies = (self._config.policies[name] for name in self._tallies)
        return sum(len(tuple(candidates_for(policy))) + 1 for policy in policies)

    async def close(self) -> None:
        """Let go of the embedder."""
        await self._cache.close()
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
        if isinstance(hit, SemanticHit) and _is_doubtful(question, hit):
            tally.doubtful.append(_near(question, hit))

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

    def _report(
        self, name: str, tally: Tally, written: dict[str, Any], advance: Callable[[int], None]
    ) -> PolicyReport:
        policy, outcomes = self._config.policies[name], tally.outcomes
        base = exact_hits(tally.judged, policy, key_of=self._key_of)
        advance(1)
        least = max(1, int(_LEAST_SHARE * len(tally.judged)))
        gains: list[tuple[int, Candidate]] = []
        for candidate in candidates_for(policy):
            won = exact_hits(tally.judged, candidate.policy, key_of=self._key_of) - base
            advance(1)
            if won >= least:
                gains.append((won, candidate))
        gains.sort(key=lambda gain: -gain[0])
        chosen = tuple(one for _, one in gains if one.is_safe and one.key != "ttl")
        better = with_all(policy, chosen)
        semantic = policy.semantic
        return PolicyReport(
            policy=name,
            requests=sum(outcomes.values()),
            exact=outcomes["exact"],
            semantic=outcomes["semantic"],
            misses=outcomes["miss"],
            bypassed=outcomes["bypass"],
            reasons=dict(tally.reasons.most_common()),
            input_tokens_saved=tally.saved.input_tokens,
            output_tokens_saved=tally.saved.output_tokens,
            money_saved=dict(tally.money),
            wrong_at_most=0.0 if semantic is None else semantic.max_error * outcomes["semantic"],
            doubtful=tuple(tally.doubtful[:_MAX_DOUBTFUL]),
            gains=tuple(_gain(won, one, len(tally.judged)) for won, one in gains),
            proposed_exact=exact_hits(tally.judged, better, key_of=self._key_of),
            diff=diff_of(name, written, chosen),
        )

    def _key_of(self, question: Question, policy: Policy) -> str:
        route = msgspec.structs.replace(question.route, policy=policy)
        try:
            named = self._decider.fingerprint(
                question.call, route, route.upstreams[0], semantic=False
            )
        except TimeoutError:
            return question.key
        return named.key


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


def _is_doubtful(question: Question, hit: SemanticHit) -> bool:
    assert question.fingerprint is not None
    assert question.rules is not None
    verdict = judge(
        question.fingerprint.prompt,
        hit.entry.prompt,
        similarity=hit.similarity,
        rules=raised_by(question.rules, RAISE),
    )
    return isinstance(verdict, Refused)


def _near(question: Question, hit: SemanticHit) -> Near:
    assert question.fingerprint is not None
    asked = question.fingerprint.prompt
    return Near(asked=asked, stored=hit.entry.prompt, similarity=hit.similarity)


def _gain(won: int, candidate: Candidate, num_requests: int) -> Gain:
    return Gain(
        name=candidate.name,
        value=candidate.value,
        hits=won,
        share=won / num_requests,
        is_safe=candidate.is_safe,
    )
