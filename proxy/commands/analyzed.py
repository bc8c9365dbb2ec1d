"""The report of an analysis in lines for people."""

from collections.abc import Iterator

from proxy.analyzing.report import Gain, PolicyReport, Report
from proxy.commands.output import count, one_line

_LONGEST = 70
_MAX_REASONS = 8


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
        yield from _policy_lines(policy, meaning=report.replays_meaning)
    yield ""
    yield report.method


def _policy_lines(one: PolicyReport, *, meaning: bool) -> Iterator[str]:
    yield f"policy {one.policy}: {count(one.requests, 'request')}"
    yield f"  exact hits     {_share(one.exact, one)}"
    if meaning:
        yield f"  by meaning     {_share(one.semantic, one)}, at most {one.wrong_at_most:.1f} wrong"
    yield f"  misses         {_share(one.misses, one)}"
    yield f"  not cached     {_share(one.bypassed, one)}"
    for reason, number in list(one.reasons.items())[:_MAX_REASONS]:
        yield f"    {number:>8,}  {reason}"
    yield f"  tokens saved   {one.input_tokens_saved:,} + {one.output_tokens_saved:,}"
    for currency, amount in one.money_saved.items():
        yield f"  money saved    {amount:,.4f} {currency}"
    for near in one.doubtful:
        asked = one_line(near.asked, longest=_LONGEST)
        stored = one_line(near.stored, longest=_LONGEST)
        yield f"  doubtful       {near.similarity:.4f}  {asked} | {stored}"
    yield from map(_gain_line, one.gains)
    if one.diff:
        yield f"  proposed: {_share(one.proposed_exact, one)} exact hits with"
        yield from (f"    {line}" for line in one.diff.splitlines())


def _gain_line(gain: Gain) -> str:
    look = "" if gain.is_safe else "  (look at your prompts first)"
    return f"  would bring    +{gain.hits:,} exact hits ({gain.share:.1%})  {gain.name}{look}"


def _share(number: int, one: PolicyReport) -> str:
    return f"{number:,} ({number / max(one.requests, 1):.1%})"
