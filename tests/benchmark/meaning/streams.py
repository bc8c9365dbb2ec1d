"""Streams: an empty cache, prompts in their order, a miss is kept."""

import functools
from collections.abc import Callable, Mapping

import msgspec

from index.embedders.calibration import AS_IT_IS, Calibration
from index.nearest.scopes import Scopes
from index.volatility.model import read_classifier
from index.volatility.rules import volatile
from meaning.counts import Share, table
from meaning.policies import PROFILES, Learner, Serves, Vcache, stateless
from meaning.sets import Row, Rows
from meaning.vectors import Vector

CANDIDATES = 8
VCACHE_ERRORS = (0.01, 0.02)


class Replay(msgspec.Struct):
    """Of one policy over one stream."""

    requests: int = 0
    hits: int = 0
    wrong: int = 0

    def cells(self) -> list[object]:
        hits = Share(self.hits, self.requests)
        wrong, per_hit = Share(self.wrong, self.requests), Share(self.wrong, self.hits)
        share = f"{self.wrong / self.requests:.4f}" if self.requests else "-"
        return [self.requests, hits, share, wrong.interval(), per_hit, per_hit.interval()]


class _Kept:
    """What a stream has put into the cache."""

    def __init__(self, vectors: Mapping[str, Vector]) -> None:
        self._scopes = Scopes(len(next(iter(vectors.values()))))
        self._vectors = vectors
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._scopes.add("", len(self.rows), self._vectors[row["prompt"]].astype("<f4").tobytes())
        self.rows.append(row)

    def near(self, row: Row, limit: int) -> list[tuple[int, float]]:
        matches = self._scopes.search("", self._vectors[row["prompt"]], limit=limit)
        return [(match.id, match.similarity) for match in matches]


def replay(
    rows: Rows,
    vectors: Mapping[str, Vector],
    serves: Serves,
    *,
    tries: int,
    is_volatile: Callable[[str], bool] = lambda _: False,
) -> Replay:
    """The first candidate that is served is the hit. What is volatile is neither looked for nor
    kept."""
    result, kept = Replay(), _Kept(vectors)
    for row in rows:
        result.requests += 1
        if row["prompt"] not in vectors or is_volatile(row["prompt"]):
            continue  # forwarded, never a hit
        for place, similarity in kept.near(row, tries):
            found = kept.rows[place]
            if serves(row["prompt"], found["prompt"], similarity):
                result.hits += 1
                result.wrong += found["class"] != row["class"]
                break
        else:
            kept.add(row)
    return result


def replay_learning(rows: Rows, vectors: Mapping[str, Vector], learner: Learner) -> Replay:
    """The nearest entry is served or learned about; kept is what it would have got wrong."""
    result, kept = Replay(), _Kept(vectors)
    for row in rows:
        result.requests += 1
        if row["prompt"] not in vectors:
            continue
        near = kept.near(row, 1)
        if not near:
            kept.add(row)
            continue
        (place, similarity) = near[0]
        right = kept.rows[place]["class"] == row["class"]
        if learner.serves(place, similarity):
            result.hits += 1
            result.wrong += not right
            continue
        learner.learn(place, similarity, right=right)
        if not right:
            kept.add(row)
    return result


def bench_streams(
    rows: Rows,
    vectors: Mapping[str, Vector],
    *,
    embedder: str = "",
    calibration: Calibration = AS_IT_IS,
) -> None:
    """All policies over the stream of each source; `strict` and `balanced` also as they are served,
    without what they take for volatile. `embedder`: its identity, which the classifier asks for."""
    classifier = read_classifier(embedder)

    @functools.cache
    def is_volatile(prompt: str) -> bool:
        return volatile(prompt) is not None or bool(classifier(vectors[prompt]))

    lines: list[tuple[str, list[object]]] = []
    for source in sorted({row["source"] for row in rows}):
        stream = sorted(
            (row for row in rows if row["source"] == source), key=lambda row: row["seq"]
        )
        for name, serves in stateless(calibration).items():
            tries = CANDIDATES if name in PROFILES else 1
            done = replay(stream, vectors, serves, tries=tries)
            lines.append((f"{source} {name}", done.cells()))
            if name in PROFILES and name != "intent":
                done = replay(stream, vectors, serves, tries=tries, is_volatile=is_volatile)
                lines.append((f"{source} {name}, volatile left out", done.cells()))
        for most in VCACHE_ERRORS:
            done = replay_learning(stream, vectors, Vcache(most))
            lines.append((f"{source} vCache's rule, {most:.2f}", done.cells()))
    table(
        "Streams: empty start, a miss is kept",
        ["requests", "hits/req", "wrong/req", "interval", "wrong/hit", "interval"],
        lines,
    )
