"""From a replayed log to what was found of each policy: changes are tried, and some proposed."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from proxy.analyzing.audited import Audited, measured
from proxy.analyzing.candidates import Candidate, candidates_for, with_all
from proxy.analyzing.embedded import Embedded, NotEmbedded
from proxy.analyzing.exact import exact_hits
from proxy.analyzing.proposal import diff_of
from proxy.analyzing.reading import Entry
from proxy.analyzing.replay import Replay, Tally, replay
from proxy.analyzing.report import Gain, Near, PolicyReport, Trial
from proxy.analyzing.tiers import TierChange, tier_changes
from proxy.deciding import Decider
from proxy.observing.prices import Prices
from proxy.question import Question
from proxy.request.conversation import last_user_text
from proxy.settings.config import Config, Policy
from proxy.settings.semantic import Semantic

_MAX_DOUBTFUL = 10
_LEAST_SHARE = 0.005
"""A change that brings less is not proposed."""

Advance = Callable[[int], None]


class _Words(msgspec.Struct, frozen=True, kw_only=True):
    """What changes of the exact tier bring."""

    gains: tuple[Gain, ...]
    """Best first."""
    chosen: tuple[Candidate, ...]
    """Those that are proposed."""
    policy: Policy
    """With them."""
    exact: int
    """Its hits."""


class Analysis:
    """One replayed log, and one config."""

    def __init__(
        self,
        base: Replay,
        config: Config,
        document: dict[str, Any],
        *,
        audited: Mapping[str, Audited],
        decider_of: Callable[[Config], Decider],
        embedded: Embedded | NotEmbedded,
    ) -> None:
        """`base`: the log replayed with `config`, which is checked. `document`: as its file has it,
        before anything else was added. `audited`: by policy, what a proxy with `config` found."""
        self._base = base
        self._config = config
        self._document = document
        self._audited = audited
        self._decider_of = decider_of
        self._decider = decider_of(config)
        self._embedded = embedded

    def num_steps(self) -> int:
        """Requests that `reports` will judge anew, counted for each change."""
        total = 0
        for name, tally in self._base.tallies.items():
            policy = self._config.policies[name]
            tried = tuple(candidates_for(policy))
            num_words = len(tried) + sum(map(_may_be_proposed, tried)) + 2
            num_tiers = len(tuple(tier_changes(policy, self._config.embedder)))
            total += num_words * len(tally.judged) + num_tiers * len(tally.entries)
        return total

    async def reports(self, advance: Advance) -> tuple[PolicyReport, ...]:
        """`advance`: see `num_steps`."""
        found = self._base.tallies.items()
        return tuple([await self._report(name, tally, advance) for name, tally in found])

    async def _report(self, name: str, tally: Tally, advance: Advance) -> PolicyReport:
        outcomes, semantic = tally.outcomes, self._config.policies[name].semantic
        words = self._try_words(name, tally, advance)
        tried = await self._try_tiers(name, tally, words, advance)
        proposed = next(((one, trial) for one, trial in tried if trial.is_proposed), None)
        embedder = self._config.embedder
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
            wrong_at_least=_num_known_wrong(tally.meant, tally.entries),
            wrong_at_most=None if semantic is None else _wrong_at_most(semantic, tally),
            measured=measured(self._audited.get(name), outcomes["semantic"]),
            num_doubtful=len(tally.doubtful),
            doubtful=tuple(tally.doubtful[:_MAX_DOUBTFUL]),
            gains=words.gains,
            trials=tuple(trial for _, trial in tried),
            proposed_exact=words.exact if proposed is None else proposed[1].exact,
            diff=diff_of(
                name,
                self._document,
                words.chosen,
                tier=None if proposed is None else proposed[0].written,
                embedder="" if embedder is None else embedder.model,
            ),
        )

    def _try_words(self, name: str, tally: Tally, advance: Advance) -> _Words:
        policy, judged = self._config.policies[name], tally.judged

        def hits(changed: Policy) -> int:
            num = exact_hits(judged, changed, key_of=self._key_of)
            advance(len(judged))
            return num

        base = hits(policy)
        won = [(hits(one.policy) - base, one) for one in candidates_for(policy)]
        won.sort(key=lambda gain: -gain[0])
        least = _least(judged)
        proposed = tuple(one for _, one in won if _may_be_proposed(one))
        chosen, exact = _needed(policy, proposed, hits=hits, least=least)
        return _Words(
            gains=tuple(_gain(num, one, len(judged)) for num, one in won if num >= least),
            chosen=chosen,
            policy=with_all(policy, chosen),
            exact=exact,
        )

    async def _try_tiers(
        self, name: str, tally: Tally, words: _Words, advance: Advance
    ) -> list[tuple[TierChange, Trial]]:
        policy, embedder = self._config.policies[name], self._config.embedder
        hits = tally.hits
        if policy.semantic is None:
            # What is asked in the same words, once these are folded, needs no embedder.
            policy, hits = words.policy, words.exact
        return [
            (one, await self._trial(name, tally, one, besides=hits, advance=advance))
            for one in tier_changes(policy, embedder)
        ]

    async def _trial(
        self, name: str, base: Tally, change: TierChange, *, besides: int, advance: Advance
    ) -> Trial:
        policies = {**self._config.policies, name: change.policy}
        config = msgspec.structs.replace(self._config, policies=policies)
        made = await replay(
            base.entries,
            self._decider_of(config),
            prices=Prices(config.prices),
            embedded=self._embedded,
            advance=advance,
        )
        tally = made.tallies[name]
        more, tier = tally.hits - besides, change.policy.semantic
        assert tier is not None
        return Trial(
            name=change.name,
            hits=more,
            share=more / len(base.entries),
            exact=tally.outcomes["exact"],
            semantic=tally.outcomes["semantic"],
            num_doubtful=len(tally.doubtful),
            doubtful=tuple(tally.doubtful[:_MAX_DOUBTFUL]),
            wrong_at_least=_num_known_wrong(tally.meant, base.entries),
            wrong_at_most=_wrong_at_most(tier, tally),
            is_proposed=change.is_safe and more >= _least(base.entries),
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


def _may_be_proposed(candidate: Candidate) -> bool:
    return candidate.is_safe and candidate.key != "ttl"


def _needed(
    policy: Policy,
    proposed: tuple[Candidate, ...],
    *,
    hits: Callable[[Policy], int],
    least: int,
) -> tuple[tuple[Candidate, ...], int]:
    """Those without which there would be fewer hits than with all, and the hits with them. Two may
    bring nothing alone and much together: an id and a time in one prompt."""
    kept = proposed
    most = num_hits = hits(with_all(policy, proposed))
    for one in reversed(proposed):  # first those that bring least alone
        others = tuple(other for other in kept if other is not one)
        num_without = hits(with_all(policy, others))
        if most - num_without < least:
            kept, num_hits = others, num_without
    return kept, num_hits


def _least(requests: list[Any]) -> int:
    return max(1, int(_LEAST_SHARE * len(requests)))


def _wrong_at_most(tier: Semantic, tally: Tally) -> float:
    """As many as its audits let pass; where nothing is audited, all."""
    return (tier.max_error if tier.audit else 1.0) * tally.outcomes["semantic"]


def _num_known_wrong(meant: Iterable[Near], entries: Iterable[Entry]) -> int:
    """Whichever of the two was asked first, and also before it was known."""
    wrong = {
        frozenset((last_user_text(one.call.surface, one.call.fields), stored))
        for one in entries
        for stored in one.wrong_with
    }
    return sum(frozenset((near.asked, near.stored)) in wrong for near in meant)


def _gain(won: int, candidate: Candidate, num_requests: int) -> Gain:
    return Gain(
        name=candidate.name,
        value=candidate.value,
        hits=won,
        share=won / num_requests,
        is_safe=candidate.is_safe,
    )
