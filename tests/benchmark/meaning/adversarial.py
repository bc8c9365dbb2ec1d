"""Pairs made to deceive, in two files of one shape (a, b, same, kind, lang).

`adversarial.jsonl` was written for this benchmark by somebody who did not write the guards;
`notations.jsonl` (numerals, units, addresses, formulae, code, spelling) by who mended them: the
first measures, the second keeps what was mended. English is read with the embedder measured;
Chinese with the multilingual one and its own thresholds, and where that is not installed at a
similarity of 1, so that the guards alone decide.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from index.embedders.embedder import Embedder
from meaning.counts import Share, table
from meaning.policies import Serves
from meaning.sets import Row, Rows
from meaning.vectors import Vector, Vectors

FILES = {"Pairs made to deceive": "adversarial.jsonl", "Numerals and notations": "notations.jsonl"}
COMPARED = ("cos 0.90", "strict", "balanced")


async def bench_adversarial(
    lang: str, embedder: Embedder | None, folder: Path, policies: Mapping[str, Serves]
) -> None:
    """Share served by kind of trap, for one language; without an embedder the guards alone."""
    for title, file in FILES.items():
        if rows := _pairs(file, lang):
            texts = [row[side] for row in rows for side in ("a", "b")]
            vectors = None if embedder is None else await Vectors(embedder, folder).of(texts)
            _bench(f"{title}, {lang}", rows, vectors, policies)


def _pairs(file: str, lang: str) -> Rows:
    lines = Path(__file__).with_name(file).read_bytes().splitlines()
    return [row for row in map(msgspec.json.decode, lines) if row["lang"] == lang]


def _bench(
    title: str,
    rows: Rows,
    vectors: Mapping[str, Vector] | None,
    policies: Mapping[str, Serves],
) -> None:
    counts: dict[str, dict[str, Share]] = {}
    for row in rows:
        similarity = 1.0 if vectors is None else _similarity(row, vectors)
        label = "same" if row["same"] else "different"
        for key in (label, f"{label} {row['kind']}"):
            shares = counts.setdefault(key, {name: Share() for name in COMPARED})
            for name, share in shares.items():
                share.count(policies[name](row["b"], row["a"], similarity))
    table(
        f"{title}: share served (of `same`: right; of `different`: wrong)",
        ["pairs", *COMPARED],
        ((key, [counts[key]["strict"].total, *counts[key].values()]) for key in sorted(counts)),
    )


def _similarity(row: Row, vectors: Mapping[str, Vector]) -> float:
    """-1 where the embedder refused a text: nothing is served."""
    a, b = row["a"], row["b"]
    return float(vectors[a] @ vectors[b]) if a in vectors and b in vectors else -1.0
