"""Which of what was found may be served, and what is said when nothing is. Pure."""

from proxy.errors import ClientError
from proxy.lookup.found import Found
from proxy.outcome import ExactHit, Hit, StaleHit
from proxy.question import Question
from proxy.reply import Reply, of_client_error


def servable(question: Question, found: Found) -> Hit | None:
    """What answers this question without asking the upstream."""
    if not question.serves:
        return None
    if found.hit is not None:
        return found.hit
    if found.staleness is not None and found.staleness.max_stale_ok:
        return _stale(found, "max-stale")
    if found.staleness is not None and found.staleness.may_serve_while_revalidating:
        return _stale(found, "stale-while-revalidate")
    return None


def rescue(question: Question, found: Found) -> StaleHit | None:
    """What answers when the upstream cannot."""
    if not question.serves:
        return None
    if found.staleness is None or not found.staleness.may_serve_if_error:
        return None
    return _stale(found, "stale-if-error")


def wants_refresh(hit: Hit) -> bool:
    """A new answer is to be made in the background."""
    return isinstance(hit, StaleHit) or (isinstance(hit, ExactHit) and hit.is_due)


def is_failure(reply: Reply) -> bool:
    """The upstream could not answer: not the fault of the request."""
    return reply.status == 429 or reply.status >= 500


def not_cached() -> Reply:
    """`only-if-cached` without an answer (RFC 9111, section 5.2.1.7)."""
    error = ClientError(
        504, "There is no stored answer, and only-if-cached forbids making one.", retry=False
    )
    return of_client_error(error)


def _stale(found: Found, reason: str) -> StaleHit:
    assert found.stale is not None
    assert found.staleness is not None
    staleness = found.staleness
    return StaleHit(entry=found.stale, age_s=staleness.age_s, ttl_s=staleness.ttl_s, reason=reason)
