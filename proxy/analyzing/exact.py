"""How many requests of a log would have found their answer by their words. Pure."""

from collections.abc import Callable, Iterable

import msgspec

from proxy.answer.freshness import lifetimes
from proxy.call import Call
from proxy.question import Question
from proxy.settings.config import Policy

_NO_JITTER = 0.0


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the cache has a part in, and the policy that it is judged by."""

    question: Question
    now: float


def exact_hits(
    judged: Iterable[Judged], policy: Policy, *, key_of: Callable[[Question, Policy], str]
) -> int:
    """With `policy` in place of the one that the questions were decided by."""
    fresh_until: dict[str, float] = {}
    num_hits = 0
    for one in judged:
        question = one.question
        key = key_of(question, policy)
        if question.eligibility.read and fresh_until.get(key, -1.0) >= one.now:
            num_hits += 1
        elif question.eligibility.write:
            fresh_until[key] = expiry(question.call, policy, now=one.now)
    return num_hits


def expiry(call: Call, policy: Policy, *, now: float) -> float:
    """Of an answer that is made now, at the latest."""
    return lifetimes(policy, call.directives, now=now, jitter=_NO_JITTER).expires_at
