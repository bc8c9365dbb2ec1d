"""How a request is laid out for its key: what counts, what is left out, what is folded. Pure."""

from itertools import islice

import msgspec

from proxy.deciding import Decider
from proxy.explaining.difference import Difference, differences
from proxy.explaining.views import LeftOut
from proxy.question import Question
from proxy.request.canonical import NULL_IS_ABSENT, OMITTED_ON, effective
from proxy.request.fingerprint import named_parts

_MAX_FOLDED = 20


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """See `proxy.explaining.views.Explanation`."""

    left_out: tuple[LeftOut, ...] = ()
    folded: tuple[Difference, ...] = ()
    parts: dict[str, str] = {}


def layout_of(question: Question, decider: Decider) -> Layout:
    """Empty where the cache has no part in the request."""
    call, route = question.call, question.route
    if question.fingerprint is None or route.policy is None:
        return Layout()
    included = decider.included(route)
    counts = effective(call.surface, call.fields, model=route.model, included=included)
    canonical = msgspec.json.decode(question.fingerprint.canonical)
    return Layout(
        left_out=_left_out(question, included),
        folded=tuple(islice(differences(counts, canonical), _MAX_FOLDED)),
        parts=named_parts(
            call,
            upstream=route.upstreams[0].identity,
            policy_name=route.policy_name or "",
            policy=route.policy,
            included=included,
        ),
    )


def _left_out(question: Question, included: frozenset[str]) -> tuple[LeftOut, ...]:
    surface, fields = question.call.surface, question.call.fields
    omitted, nullable = OMITTED_ON[surface], NULL_IS_ABSENT[surface]
    found = [
        LeftOut(field=name, reason=omitted[name])
        for name in fields
        if name in omitted and name not in included
    ]
    found += [
        LeftOut(field=name, reason="null is the same as leaving it out")
        for name, value in fields.items()
        if value is None and name in nullable and name not in omitted
    ]
    return tuple(found)
