"""Volatile and personal prompts: what rules name, and what the classifier adds."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from index.volatility.model import Classifier, read_classifier
from index.volatility.rules import volatile
from index.volatility.training import Line, train
from meaning.counts import Share, table
from meaning.sets import Row, Rows, by_prompt, take
from meaning.vectors import Vector

Named = Callable[[Row], bool]


def bench_volatile(rows: Rows, vectors: Mapping[str, Vector], identity: str) -> None:
    """Recall and stable prompts lost: rules, the shipped model, models that saw less."""
    shipped = read_classifier(identity)
    tuned, reserved = take(rows, "tuned", by_prompt), take(rows, "reserved", by_prompt)
    _print("rules alone", rows, _by_rules)
    _print(
        "rules and the shipped classifier (trained on these lines)", rows, _either(shipped, vectors)
    )
    fair = _trained(tuned, vectors, identity)
    _print("trained on 70 of 100, measured on the rest", reserved, _either(fair, vectors))
    for left_out in sorted({row["source"] for row in rows if row["prompt"] in vectors}):
        others = [row for row in rows if row["source"] != left_out]
        own = [row for row in rows if row["source"] == left_out]
        model = _trained(others, vectors, identity)
        _print(f"trained without {left_out}", own, _either(model, vectors))
    _print_rules(rows)


def _by_rules(row: Row) -> bool:
    return volatile(row["prompt"]) is not None


def _either(classifier: Callable[[Vector], bool], vectors: Mapping[str, Vector]) -> Named:
    def named(row: Row) -> bool:
        vector = vectors.get(row["prompt"])
        return _by_rules(row) or (vector is not None and classifier(vector))

    return named


def _trained(rows: Rows, vectors: Mapping[str, Vector], identity: str) -> Classifier:
    readable = [row for row in rows if row["prompt"] in vectors]
    lines = [
        Line(prompt=row["prompt"], volatile=row["volatile"], source=row["source"])
        for row in readable
    ]
    stacked = np.stack([vectors[row["prompt"]] for row in readable])
    return Classifier(train(lines, stacked, embedder=identity, trained_on="benchmark"))


def _print(title: str, rows: Rows, named: Named) -> None:
    counts: dict[str, dict[bool, Share]] = {}
    for row in rows:
        hit = named(row)
        for source in ("all", row["source"]):
            both = counts.setdefault(source, {True: Share(), False: Share()})
            both[row["volatile"]].count(hit)
    table(
        f"Volatile prompts, {title}",
        ["recall", "interval", "lost", "interval"],
        (
            (source, [both[True], both[True].interval(), both[False], both[False].interval()])
            for source, both in sorted(counts.items())
        ),
    )


def _print_rules(rows: Rows) -> None:
    named: Counter[tuple[str, bool]] = Counter()
    for row in rows:
        reason = volatile(row["prompt"])
        if reason is not None:
            named[reason, row["volatile"]] += 1
    table(
        "By rule: prompts named",
        ["volatile", "stable"],
        (
            (reason, [named[reason, True], named[reason, False]])
            for reason in sorted({reason for reason, _ in named})
        ),
    )
