"""Why two requests do or do not share an answer. Pure."""

from itertools import islice

import msgspec
from msgspec import UnsetType

from index.verdict import Rules, raised_by
from proxy.explaining.difference import Difference, differences
from proxy.explaining.meanings import meaning_of
from proxy.explaining.nearness import nearness
from proxy.explaining.views import Comparison, Explanation, NearView

_MAX_SHOWN = 50


def beside(
    a: Explanation, b: Explanation, *, similarity: float | None, rules: Rules | None
) -> NearView | None:
    """B's text judged beside A's; None where they are not of one scope, or cannot be compared."""
    if similarity is None or rules is None or not a.scope or a.scope != b.scope:
        return None
    asked = raised_by(rules, 0.0 if b.tier is None else b.tier.raised)
    return nearness(b.prompt, key=a.key, prompt=a.prompt, similarity=similarity, rules=asked)


def compare(a: Explanation, b: Explanation, near: NearView | None) -> Comparison:
    """`near`: see `beside`."""
    found = tuple(islice(differences(_decoded(a), _decoded(b)), _MAX_SHOWN))
    parts = tuple(differences(a.parts, b.parts))
    share, meaning = _shared(a, b, parts, near)
    return Comparison(
        share=share,
        meaning=meaning,
        parts=parts,
        first=found[0] if found else None,
        differences=found,
        near=near,
        a=a,
        b=b,
    )


def _shared(
    a: Explanation, b: Explanation, parts: tuple[Difference, ...], near: NearView | None
) -> tuple[str, str]:
    for name, one in (("A", a), ("B", b)):
        if not one.key:
            why = "; ".join(reason.meaning for reason in one.reasons)
            return "no", f"{name} has nothing to do with the cache: {why}"
    if a.key == b.key:
        return "exact", "both have the same key"
    if parts:
        named = ", ".join(part.path for part in parts)
        return "no", f"they differ in what an answer belongs to: {named}"
    if near is None:
        return "no", _apart(a, b)
    if near.accepted:
        return "semantic", "only the last text differs, and the two may share an answer"
    return "no", f"only the last text differs, and {meaning_of(near.reason)}"


def _apart(a: Explanation, b: Explanation) -> str:
    if not (a.scope and b.scope):
        return "they are found by the same words only, and those differ"
    if a.scope != b.scope:
        return "more than the last text differs"
    return "only the last text differs, and there is no embedder that can compare it"


def _decoded(one: Explanation) -> object:
    if isinstance(one.canonical, UnsetType):
        return {}
    return msgspec.json.decode(one.canonical)
