"""From a call to a question: every decision that needs nothing but the request and the config.

Pure: nothing here awaits, reads a clock or does I/O.
"""

from collections.abc import Callable, Collection, Mapping

import msgspec

from index.verdict import Rules
from index.volatility.rules import Patterns
from proxy.call import Call, Fingerprint
from proxy.question import Question
from proxy.request.conversation import inputs_of
from proxy.request.eligibility import Eligibility
from proxy.request.eligibility import judge as judge_eligibility
from proxy.request.fingerprint import fingerprint, fingerprints
from proxy.request.invalidation import TagRules, Untaggable
from proxy.request.matching import Facts
from proxy.request.routing import Route, Router
from proxy.settings import config as written
from proxy.settings.semantic import Semantic
from proxy.tenancy.subjects import subjects_of
from proxy.upstreams.base import Upstream

_NO_PATTERNS = Patterns(rules=())
_WHO_ASKS = frozenset({"user", "metadata"})


class Decider:
    """The decisions of one config. Has no state: safe to share, replaced on reload."""

    def __init__(
        self,
        router: Router,
        policies: Mapping[str, written.Policy],
        *,
        secret: bytes,
        applications: Collection[str] = (),
        patterns_of: Callable[[written.Policy], Patterns],
        rules_of: Callable[[Semantic], Rules],
    ) -> None:
        """`secret` is the store's; `applications` names the upstreams that are more than a model;
        `patterns_of` and `rules_of` compile what a policy says of volatile questions and of its
        semantic tier."""
        self._router = router
        self._secret = secret
        self._patterns = {name: patterns_of(one) for name, one in policies.items()}
        self._applications = frozenset(applications)
        self._tag_rules = {name: TagRules(policy.tags) for name, policy in policies.items()}
        self._verdict_rules = {
            name: rules_of(policy.semantic)
            for name, policy in policies.items()
            if policy.semantic is not None
        }

    def decide(self, call: Call) -> Question:
        """Raises ClientError where no route leads."""
        facts = Facts(
            model=call.model,
            path=call.path,
            headers=call.headers,
            tenant=call.caller.tenant,
            surface=call.surface,
            fields=call.fields,
        )
        route = self._router.route(facts)
        patterns = self._patterns.get(route.policy_name or "", _NO_PATTERNS)
        eligibility = judge_eligibility(call, route.policy, volatile=patterns.reason)
        subjects = subjects_of(call.fields, secret=self._secret)
        if route.policy is None or not (eligibility.read or eligibility.write):
            return Question(call=call, route=route, eligibility=eligibility, subjects=subjects)
        tagged = self._tag_rules[route.policy_name or ""].tags_of(call)
        if isinstance(tagged, Untaggable):
            # What the answer depends on is not known, so it can neither be found nor kept.
            barred = _barred(tagged.reason)
            return Question(call=call, route=route, eligibility=barred, subjects=subjects)
        try:
            named = self.fingerprint(call, route, route.upstreams[0], eligibility.semantic)
        except TimeoutError:
            barred = _barred("strip_slow")
            return Question(call=call, route=route, eligibility=barred, subjects=subjects)
        return Question(
            call=call,
            route=route,
            eligibility=eligibility,
            fingerprint=named,
            tags=tagged.tags,
            subjects=subjects,
            rules=self._verdict_rules.get(route.policy_name or ""),
            patterns=patterns,
        )

    def fingerprint(
        self, call: Call, route: Route, upstream: Upstream, semantic: bool
    ) -> Fingerprint:
        """Key and scope of a call as far as `upstream` answers it. Raises TimeoutError when what
        the policy strips takes too long to find."""
        assert route.policy is not None
        assert route.policy_name is not None
        return fingerprint(
            call,
            secret=self._secret,
            upstream=upstream.identity,
            model=route.model,
            policy_name=route.policy_name,
            policy=route.policy,
            included=self._included(upstream.name),
            semantic=semantic,
        )

    def included(self, route: Route) -> frozenset[str]:
        """Fields that count although they are left out of keys as a rule."""
        assert route.policy is not None
        return self._included(route.upstreams[0].name).union(route.policy.key.include)

    def pieces(self, question: Question) -> tuple[Question, ...]:
        """A request for embeddings as one question for each of its inputs, in their order."""
        call, route = question.call, question.route
        assert route.policy is not None
        assert route.policy_name is not None
        inputs = inputs_of(call.fields)
        if inputs == [call.fields["input"]]:
            return (question,)
        found = fingerprints(
            call,
            inputs,
            secret=self._secret,
            upstream=route.upstreams[0].identity,
            model=route.model,
            policy_name=route.policy_name,
            policy=route.policy,
            included=self._included(route.upstreams[0].name),
        )
        return tuple(
            msgspec.structs.replace(
                question,
                call=msgspec.structs.replace(call, fields={**call.fields, "input": one}),
                fingerprint=fingerprint,
            )
            for one, fingerprint in zip(inputs, found, strict=True)
        )

    def _included(self, upstream: str) -> frozenset[str]:
        """Fields that count here, although they are left out of keys as a rule."""
        return _WHO_ASKS if upstream in self._applications else frozenset()


def _barred(reason: str) -> Eligibility:
    return Eligibility(read=False, write=False, semantic=False, reasons=(reason,))
