"""Conversations whose last turns are near: what stands before them must be equal (the scope)."""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from meaning.counts import Share, table
from meaning.policies import Serves
from meaning.sets import Row, Rows
from meaning.vectors import Vector
from proxy.call import Caller, Directives, Surface
from proxy.observing.recollection import Recollection, call_of
from proxy.request.fingerprint import fingerprint
from proxy.settings.config import Policy
from proxy.settings.semantic import Semantic
from proxy.settings.units import Duration


def last_turn(row: Row, side: str) -> str:
    """The text that is matched by meaning."""
    return str(row[side][-1]["content"])


def scope_of(messages: list[dict[str, str]]) -> str:
    """That of the proxy, for a request with these messages."""
    body = msgspec.json.encode({"model": "m", "messages": messages})
    call = call_of(
        Recollection(
            request_id="",
            received_at=0.0,
            path=Surface.CHAT.value,
            caller=Caller(tenant="t", credential_id=""),
            directives=Directives(),
            request=msgspec.Raw(body),
        )
    )
    found = fingerprint(
        call,
        secret=b"benchmark",
        upstream="u",
        model="m",
        policy_name="p",
        policy=Policy(ttl=Duration(3600), semantic=Semantic()),
        included=frozenset(),
        semantic=True,
    )
    return found.scope


def bench_contexts(
    rows: Rows, vectors: Mapping[str, Vector], policies: Mapping[str, Serves]
) -> None:
    """Wrong answers over all; what may be served and is not, only by its kind."""
    kinds: dict[str, dict[str, Share]] = defaultdict(lambda: {name: Share() for name in policies})
    wrong = {name: Share() for name in policies}
    for row in rows:
        label = "same" if row["same"] else "different"
        for name, serves in policies.items():
            served = _served(row, vectors, serves, scoped=not name.startswith("cos"))
            kinds[f"{label} {row['source']} {row['kind']}"][name].count(served)
            wrong[name].count(served and not row["same"])
    table(
        "Contexts: share served", list(policies), ((k, [*kinds[k].values()]) for k in sorted(kinds))
    )
    table(
        "Contexts: wrong answers a request",
        ["wrong/req", "interval"],
        ((name, [share, share.interval()]) for name, share in wrong.items()),
    )


def _served(row: Row, vectors: Mapping[str, Vector], serves: Serves, *, scoped: bool) -> bool:
    """`scoped`: as we do; else the last turn alone decides, as it does in many caches."""
    if scoped and scope_of(row["a"]) != scope_of(row["b"]):
        return False
    a, b = last_turn(row, "a"), last_turn(row, "b")
    if a == b:
        return True
    if a not in vectors or b not in vectors:
        return False
    return serves(b, a, float(vectors[a] @ vectors[b]))
