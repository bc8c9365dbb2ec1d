"""The report of an analysis in lines for people."""

from collections.abc import Iterator

from proxy.analyzing.report import Gain, Measured, Near, PolicyReport, Report, Trial
from proxy.commands.output import count, money, one_line

_LONGEST = 70
_MAX_REASONS = 8
_MAX_DOUBTFUL = 3
"""Of a change; of the policy as it is, all that the report has."""


def report_lines(report: Report) -> Iterator[str]:
    """Policy by policy; the method last."""
    read = report.lines - report.unread
    yield f"{count(read, 'request')} of {count(report.lines, 'line')}"
    if report.uncached:
        yield f"{count(report.uncached, 'request')} to routes without a cache"
    if not report.has_times:
        yield "the log has no times: no answer has expired"
    for policy in report.policies:
        yield ""
        yield from _policy_lines(policy)
    yield ""
    yield report.method


def _policy_lines(one: PolicyReport) -> Iterator[str]:
    yield f"policy {one.policy}: {count(one.requests, 'request')}"
    yield f"  exact hits     {_share(one.exact, one)}"
    if one.wrong_at_most is not None:
        wrong = _wrong(one.num_doubtful, one.wrong_at_least, one.wrong_at_most)
        yield f"  by meaning     {_share(one.semantic, one)}, {wrong}"
    if one.measured is not None:
        yield f"  measured       {_measured(one.measured)}"
    yield f"  misses         {_share(one.misses, one)}"
    yield f"  not cached     {_share(one.bypassed, one)}"
    for reason, number in list(one.reasons.items())[:_MAX_REASONS]:
        yield f"    {number:>8,}  {reason}"
    yield f"  tokens saved   {one.input_tokens_saved:,} + {one.output_tokens_saved:,}"
    for currency, amount in one.money_saved.items():
        yield f"  money saved    {money(amount)} {currency}"
    yield from map(_doubtful_line, one.doubtful)
    yield from map(_gain_line, one.gains)
    for trial in one.trials:
        yield from _trial_lines(trial)
    if one.diff:
        meant = sum(trial.semantic for trial in one.trials if trial.is_proposed)
        more = f", and {_share(meant, one)} by meaning once that is proven," if meant else ""
        yield f"  proposed: {_share(one.proposed_exact, one)} exact hits{more} with"
        yield from (f"    {line}" for line in one.diff.splitlines())


def _gain_line(gain: Gain) -> str:
    look = "" if gain.is_safe else "  (look at your prompts first)"
    return f"  would bring    +{gain.hits:,} exact hits ({gain.share:.1%})  {gain.name}{look}"


def _trial_lines(trial: Trial) -> Iterator[str]:
    verb = "bring" if trial.hits >= 0 else "cost "
    yield f"  would {verb}    {trial.hits:+,} hits ({trial.share:.1%})  {trial.name}"
    wrong = _wrong(trial.num_doubtful, trial.wrong_at_least, trial.wrong_at_most)
    yield f"                 {trial.exact:,} exact, {trial.semantic:,} by meaning, {wrong}"
    yield from map(_doubtful_line, trial.doubtful[:_MAX_DOUBTFUL])


def _doubtful_line(near: Near) -> str:
    asked, stored = (one_line(text, longest=_LONGEST) for text in (near.asked, near.stored))
    return f"  doubtful       {near.similarity:.4f}  {asked} | {stored}"


def _wrong(num_doubtful: int, at_least: int, at_most: float) -> str:
    return f"{num_doubtful:,} doubtful; wrong: {at_least:,} known, {at_most:.1f} let pass by audits"


def _measured(found: Measured) -> str:
    limits = f"between {found.wrong_at_least:.1f} and {found.wrong_at_most:.1f}"
    return f"{found.expected_wrong:.1f} wrong expected, {limits}, by {found.audited:,} audited"


def _share(number: int, one: PolicyReport) -> str:
    return f"{number:,} ({number / max(one.requests, 1):.1%})"
