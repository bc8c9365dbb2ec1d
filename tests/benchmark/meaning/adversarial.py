"""Pairs made to deceive: written for this benchmark by somebody who did not write the guards.

`adversarial.jsonl` (a, b, same, kind, lang) is part of the repository. English is read with the
embedder measured; Chinese with the multilingual one and its own thresholds, and where that is not
installed at a similarity of 1, so that the guards alone decide.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from index.embedder import Embedder
from meaning.counts import Share, table
from meaning.policies import Serves
from meaning.sets import Row, Rows
from meaning.vectors import Vector, Vectors

PAIRS = Path(__file__).with_name("adversarial.jsonl")
COMPARED = ("cos 0.90", "strict", "balanced")


def adversarial(lang: str) -> Rows:
    """The pairs of one language."""
    rows = [msgspec.json.decode(line) for line in PAIRS.read_bytes().splitlines()]
    return [row for row in rows if row["lang"] == lang]


async def bench_adversarial(
    lang: str, embedder: Embedder | None, folder: Path, policies: Mapping[str, Serves]
) -> None:
    """Share served by kind of trap, for one language; without an embedder the guards alone."""
    rows = adversarial(lang)
    vectors: Mapping[str, Vector] = {}
    if embedder is not None:
        texts = (row[side] for row in rows for side in ("a", "b"))
        vectors = await Vectors(embedder, folder).of(texts)
    counts: dict[str, dict[str, Share]] = {}
    for row in rows:
        similarity = 1.0 if embedder is None else _similarity(row, vectors)
        label = "same" if row["same"] else "different"
        for key in (f"{lang} {label}", f"{lang} {label} {row['kind']}"):
            shares = counts.setdefault(key, {name: Share() for name in COMPARED})
            for name, share in shares.items():
                share.count(policies[name](row["b"], row["a"], similarity))
    table(
        f"Adversarial pairs, {lang}: share served (of `same`: right; of `different`: wrong)",
        ["pairs", *COMPARED],
        ((key, [counts[key]["strict"].total, *counts[key].values()]) for key in sorted(counts)),
    )


def _similarity(row: Row, vectors: Mapping[str, Vector]) -> float:
    """-1 where the embedder refused a text: nothing is served."""
    a, b = row["a"], row["b"]
    return float(vectors[a] @ vectors[b]) if a in vectors and b in vectors else -1.0
