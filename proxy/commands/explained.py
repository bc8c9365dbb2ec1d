"""Explanations in lines for people."""

from collections.abc import Iterator

from proxy.commands.output import age, count, money, one_line
from proxy.explaining.difference import Difference
from proxy.explaining.views import (
    Comparison,
    EntryView,
    ExactView,
    Explanation,
    MovedTag,
    NearView,
    TierView,
)

_LONGEST = 90
_MAX_TAGS = 12


def explanation_lines(one: Explanation) -> Iterator[str]:
    """The answer first, then what led to it in the order in which it is decided."""
    yield f"{one.outcome}: {_why(one)}"
    yield from _past_lines(one)
    policy = "no cache" if one.route.policy is None else f"policy {one.route.policy}"
    where = f"{' -> '.join(one.route.upstreams)} as {one.route.model}"
    yield f"route      {one.route.name} to {where}, {policy} ({one.route.mode})"
    yield f"tenant     {one.tenant}"
    allowed = [name for name in ("read", "write", "semantic") if getattr(one.may, name)]
    yield f"may        {', '.join(allowed) or 'nothing'}"
    for reason in one.may.reasons:
        yield f"           {reason.word}: {reason.meaning}"
    if one.key:
        yield from _key_lines(one)
    for left_out in one.left_out:
        yield f"left out   {left_out.field}: {left_out.reason}"
    for folded in one.folded:
        yield f"folded     {folded.path}: {_both(folded)}"
    if one.exact is not None:
        yield from _exact_lines(one.exact, now=one.now)
    for near in one.near:
        yield from near_lines(near)
    if one.tier is not None:
        yield f"audits     {one.tier.state}; {_bound(one.tier)}"
    yield from _cost_lines(one)


def comparison_lines(one: Comparison) -> Iterator[str]:
    """Whether they share, then every difference."""
    share = {"exact": "one answer for both", "semantic": "B may get A's answer"}
    yield f"{share.get(one.share, 'no answer in common')}: {one.meaning}"
    for part in one.parts:
        yield f"belongs    {part.path}: {_both(part)}"
    for difference in one.differences:
        yield f"differs    {difference.path}: {_both(difference)}"
    if one.near is not None:
        yield from near_lines(one.near)
    yield f"A          key {one.a.key or '-'}  scope {one.a.scope or '-'}"
    yield f"B          key {one.b.key or '-'}  scope {one.b.scope or '-'}"


def _past_lines(one: Explanation) -> Iterator[str]:
    if one.seen is None or one.past is None:
        return
    why = f" ({', '.join(one.seen.reasons)})" if one.seen.reasons else ""
    yield f"when it came: {one.seen.outcome}{why}, status {one.seen.status}"
    for reason in one.past.reasons:
        yield f"           {reason.word}: {reason.meaning}"
    for near in one.past.near:
        yield from near_lines(near)


def near_lines(near: NearView) -> Iterator[str]:
    """A stored question, and the verdict."""
    asked = "whatever the similarity" if near.asked is None else f"{near.asked:.4f} asked for"
    verdict = "accepted" if near.accepted else near.reason
    yield f"near       {near.similarity:.4f} {verdict} ({asked}): {near.meaning}"
    yield f"           {one_line(near.prompt, longest=_LONGEST)}"
    for reason in near.why:
        yield f"           {reason.word}: {reason.meaning}"


def _why(one: Explanation) -> str:
    accepted = next((near for near in one.near if near.accepted), None)
    if one.outcome == "semantic" and accepted is not None:
        return f"the answer to {one_line(accepted.prompt, longest=_LONGEST)!r} may be served"
    if one.reasons:
        return "; ".join(f"{reason.word}: {reason.meaning}" for reason in one.reasons)
    return "an answer is stored that may be served"


def _key_lines(one: Explanation) -> Iterator[str]:
    yield f"key        {one.key}"
    if one.scope:
        yield f"scope      {one.scope}"
    if one.tags:
        yield f"tags       {', '.join(one.tags[:_MAX_TAGS])}"


def _exact_lines(exact: ExactView, *, now: float) -> Iterator[str]:
    yield f"stored     {exact.state}: {exact.meaning}"
    if exact.entry is not None:
        old = age(now - exact.entry.created_at)
        left = "" if exact.ttl_s is None else f", {_left(exact.ttl_s)}"
        seen = f"it has seen {count(exact.entry.sequence, 'purge')} of {exact.sequence}"
        yield f"           {old} old{left}; {seen}"
    for moved in exact.moved:
        how = "softly purged" if moved.soft else "purged"
        when = _when(moved, exact.entry)
        yield f"           {moved.tag} was {how} by purge {moved.sequence}{when}"


def _when(moved: MovedTag, entry: EntryView | None) -> str:
    if entry is None:
        return ""
    if moved.covers:
        return ", after this answer's request came"
    if moved.sequence <= entry.sequence:
        return ", before this answer's request came"
    return ", which this answer does not carry"


def _bound(tier: TierView) -> str:
    if tier.bound == "unproven":
        return "too few audits to say how many of its hits are wrong (unproven)"
    return f"at most {tier.bound:.1%} of its hits are wrong"


def _cost_lines(one: Explanation) -> Iterator[str]:
    cost = one.cost
    price = "" if cost.amount is None else f", {money(cost.amount)} {cost.currency}"
    basis = "as the stored answer took" if cost.basis == "stored" else "a guess"
    yield f"cost       {cost.input_tokens}+{cost.output_tokens} tokens{price} ({basis})"


def _left(ttl_s: float) -> str:
    return f"fresh for {age(ttl_s)}" if ttl_s > 0 else f"stale since {age(-ttl_s)}"


def _both(difference: Difference) -> str:
    a = one_line(difference.a, longest=_LONGEST)
    return f"{a} | {one_line(difference.b, longest=_LONGEST)}"
