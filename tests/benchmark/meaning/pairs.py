"""Pairs of prompts with a known answer: may the answer to one be served for the other?"""

from collections import defaultdict
from collections.abc import Mapping

from meaning.counts import Share, table
from meaning.policies import Serves
from meaning.sets import Rows
from meaning.vectors import Vector

LEAST_PAIRS_OF_A_KIND = 15

Counts = dict[tuple[str, str, str], dict[str, Share]]


def bench_pairs(
    title: str, rows: Rows, vectors: Mapping[str, Vector], policies: Mapping[str, Serves]
) -> None:
    """Share served, by source and kind of trap. What has no embedding is never served."""
    counts: Counts = defaultdict(lambda: {name: Share() for name in policies})
    for row in rows:
        a, b = row["a"], row["b"]
        readable = a in vectors and b in vectors
        similarity = float(vectors[a] @ vectors[b]) if readable else -1.0
        label = "same" if row["same"] else "different"
        for name, serves in policies.items():
            served = readable and serves(b, a, similarity)
            for kind in {"", row.get("kind") or ""}:
                counts[label, row["source"], kind][name].count(served)
    last = list(policies)[-1]
    shown = [
        key
        for key in sorted(counts)
        if counts[key][last].total >= LEAST_PAIRS_OF_A_KIND or not key[2]
    ]
    table(
        f"{title}: share served (of `same`: right; of `different`: wrong)",
        ["pairs", *policies],
        (
            (" ".join(filter(None, key)), [counts[key][last].total, *counts[key].values()])
            for key in shown
        ),
    )
    _print_totals(counts, policies)


def _print_totals(counts: Counts, policies: Mapping[str, Serves]) -> None:
    """For each policy and source: wrong hits a request, and wrong hits a hit."""
    sources = sorted({source for _, source, kind in counts if not kind})

    def cells(source: str, name: str) -> list[object]:
        right = counts["same", source, ""][name]
        wrong = counts["different", source, ""][name]
        per_request = Share(wrong.num, right.total + wrong.total)
        per_hit = Share(wrong.num, right.num + wrong.num)
        return [per_request, per_request.interval(), per_hit, per_hit.interval()]

    table(
        "The same pairs: wrong hits, with 95 % intervals",
        ["wrong/req", "interval", "wrong/hit", "interval"],
        ((f"{source} {name}", cells(source, name)) for source in sources for name in policies),
    )
