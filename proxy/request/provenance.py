"""Whose a question is, for upstreams that keep parts of prompts: with whom it shares them, and what
purges take them away."""

from index import tags
from index.entry import Snapshot
from proxy.question import Question
from proxy.request.invalidation import implicit_tags
from proxy.upstreams.base import Provenance


def provenance_of(question: Question, snapshot: Snapshot | None) -> Provenance:
    """Parts of prompts are shared among those who share answers, and no further: `cached_tokens`
    and the time of an answer tell whether somebody has asked the like before."""
    return Provenance(
        isolation=_isolation(question),
        tags=_tags(question),
        snapshot=snapshot,
        may_keep=not question.call.directives.no_store,
    )


def _isolation(question: Question) -> str:
    namespace = question.call.directives.namespace.encode("utf-8", "surrogatepass")
    # In hex there is no colon: no name can be spelled such that it is another's.
    return f"namespace:{namespace.hex()}:{_circle(question)}" if namespace else _circle(question)


def _circle(question: Question) -> str:
    """Who shares answers, within a namespace."""
    policy, caller = question.route.policy, question.call.caller
    share = "credential" if policy is None else policy.share
    if share == "everyone":
        return "everyone"
    if share == "tenant":
        return f"tenant:{caller.tenant}"
    return f"credential:{len(caller.tenant)}:{caller.tenant}:{caller.credential_id}"


def _tags(question: Question) -> tuple[str, ...] | None:
    """None where the policy's rules were not asked, so that more may belong to it."""
    call, route = question.call, question.route
    if route.policy is not None and question.fingerprint is None:
        return None
    named = question.tags if route.policy is not None else call.directives.tags
    implicit = implicit_tags(
        call,
        route=route.name,
        policy_name=route.policy_name or "",
        model=route.model,
        subjects=question.subjects,
    )
    own = (tags.key_tag(question.key),) if question.key else ()
    return (*tags.union(named, implicit), *own)
