"""Why a candidate that was found by meaning is refused. Pure."""

from index.nearest.vectorplace import Candidate
from index.verdict import Refused, Rules, judge, raised_by
from proxy.auditing.tier import Tier
from proxy.outcome import Near
from proxy.question import Question


def rules_now(question: Question, tier: Tier | None) -> Rules:
    """Of its policy, with what audits ask for on top. The question has rules."""
    assert question.rules is not None
    raised = 0.0 if tier is None or tier.standing is None else tier.standing.raised
    return raised_by(question.rules, raised)


def refusal(
    question: Question, candidate: Candidate, similarity: float, rules: Rules
) -> str | None:
    """The reason; None where the candidate's answer may be given."""
    assert question.fingerprint is not None
    asked = question.fingerprint.prompt
    verdict = judge(asked, candidate.prompt, similarity=similarity, rules=rules)
    return verdict.reason if isinstance(verdict, Refused) else None


def near_of(candidate: Candidate, reason: str) -> Near:
    """What is told of a candidate that was refused."""
    return Near(
        key=candidate.key, prompt=candidate.prompt, similarity=candidate.similarity, reason=reason
    )
