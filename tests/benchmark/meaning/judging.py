"""Judges of answers, on pairs of answers whose author did not know them (`answers.jsonl`)."""

from collections import defaultdict
from pathlib import Path

import msgspec

from meaning.counts import Share, table
from proxy.auditing.judges import Judge

ANSWERS = Path(__file__).with_name("answers.jsonl")


class Pair(msgspec.Struct, frozen=True):
    """Two answers to one question; `same`: who asked gets the same information."""

    question: str
    a: str
    b: str
    same: bool
    kind: str


async def bench_judges(judges: dict[str, Judge]) -> None:
    """Misses: pairs that differ and are called the same. False alarms: the other way round."""
    pairs = [msgspec.json.decode(line, type=Pair) for line in ANSWERS.open("rb") if line.strip()]
    lines, kinds = [], defaultdict(lambda: {name: Share() for name in judges})
    for name, judge in judges.items():
        missed, alarmed, unjudged = Share(), Share(), Share()
        for pair in pairs:
            said = await judge.agree(None, pair.a, pair.b)
            unjudged.count(said is None)
            if said is None:
                continue
            (alarmed if pair.same else missed).count(said != pair.same)
            label = "same" if pair.same else "different"
            kinds[f"{label} {pair.kind}"][name].count(said != pair.same)
        lines.append((name, [missed, missed.interval(), alarmed, alarmed.interval(), unjudged]))
    table(
        f"Judges on {len(pairs)} pairs of answers",
        ["misses", "interval", "false alarms", "interval", "cannot say"],
        lines,
    )
    table(
        "The same: mistakes by kind",
        ["pairs", *judges],
        (
            (kind, [next(iter(by.values())).total, *by.values()])
            for kind, by in sorted(kinds.items())
        ),
    )
