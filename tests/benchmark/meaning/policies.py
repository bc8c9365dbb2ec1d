"""Who decides whether one prompt's answer is served for another."""

import math
import random
from collections.abc import Callable
from typing import Protocol

import msgspec
import numpy as np

from index.embedders.calibration import AS_IT_IS, Calibration
from index.verdict import Accepted, Profile, judge, rules_for

STATIC = (0.80, 0.85, 0.90, 0.92, 0.95)
PROFILES: tuple[Profile, ...] = ("strict", "balanced", "intent")

Serves = Callable[[str, str, float], bool]
"""Of the prompt asked, the prompt stored and the cosine of the two."""


def static(least: float) -> Serves:
    """One threshold, as semantic caches commonly have."""
    return lambda asked, stored, similarity: similarity >= least


def profile(name: Profile, calibration: Calibration = AS_IT_IS) -> Serves:
    """Ours."""
    rules = rules_for(name, calibration=calibration)
    return lambda asked, stored, similarity: isinstance(
        judge(asked, stored, similarity=similarity, rules=rules), Accepted
    )


def stateless(calibration: Calibration = AS_IT_IS) -> dict[str, Serves]:
    """All that need no memory, by name; static thresholds are cosines as they are."""
    served = {f"cos {least:.2f}": static(least) for least in STATIC}
    return served | {name: profile(name, calibration) for name in PROFILES}


class Learner(Protocol):
    """A policy that learns from what it asked the upstream."""

    def serves(self, entry: int, similarity: float) -> bool:
        """Whether entry's answer is served, or the upstream asked."""
        ...

    def learn(self, entry: int, similarity: float, *, right: bool) -> None:
        """The upstream was asked: would the entry's answer have been right?"""
        ...


class _Fit(msgspec.Struct):
    seen: list[tuple[float, bool]] = []
    explore_at: tuple[float, float, float] | None = None
    """Location, steepness and the location's standard error; None: to be fitted again."""


class Vcache:
    """vCache's published rule, written from the formulae of its paper alone (Schroeder et al.,
    "vCache: Verified Semantic Prompt Caching", ICLR 2026, arXiv 2502.03771).

    Each entry has observations (similarity, right) of the prompts whose nearest it was, and learns
    Pr(right | s) = 1 / (1 + exp(-g (s - t))) from them by maximum likelihood. The upstream is asked
    with a probability of tau = min over e in (0, 1) of (1 - d - p) / (1 - p): d is the error
    allowed, and p = (1 - e) Pr(right | s) with t and g at the conservative end of their confidence
    1 - e.

    What the formulae leave open, we took in the rule's favour: g is its estimate, only t is at its
    end (with a band for both it gives a quarter to five sixths of the hits). Ours are also: five
    confidences, the standard error by the delta method, a small ridge, and two observations before
    the first, (0, wrong) and (1, right), so that a fit exists.
    """

    _CONFIDENCES = ((0.01, 2.326), (0.05, 1.645), (0.10, 1.282), (0.20, 0.842), (0.40, 0.253))
    _RIDGE = 1e-3

    def __init__(self, max_error: float, seed: int = 0) -> None:
        self._max_error = max_error
        self._random = random.Random(seed)
        self._fits: dict[int, _Fit] = {}

    def serves(self, entry: int, similarity: float) -> bool:
        fit = self._fits.setdefault(entry, _Fit(seen=[(0.0, False), (1.0, True)]))
        if fit.explore_at is None:
            fit.explore_at = self._fitted(fit.seen)
        location, steepness, error = fit.explore_at
        explore = min(
            self._explore((1 - left) * _logistic(steepness * (similarity - location - z * error)))
            for left, z in self._CONFIDENCES
        )
        return self._random.random() > explore

    def learn(self, entry: int, similarity: float, *, right: bool) -> None:
        fit = self._fits[entry]
        fit.seen.append((similarity, right))
        fit.explore_at = None

    def _explore(self, chance: float) -> float:
        return max(0.0, (1 - self._max_error - chance) / max(1e-9, 1 - chance))

    def _fitted(self, seen: list[tuple[float, bool]]) -> tuple[float, float, float]:
        """Newton's method on a + g s; the error of t = -a / g by the delta method."""
        inputs = np.array([[1.0, similarity] for similarity, _ in seen])
        labels = np.array([float(right) for _, right in seen])
        found = np.array([-4.0, 8.0])
        for _ in range(20):
            chances = 1 / (1 + np.exp(-np.clip(inputs @ found, -30, 30)))
            curvature = (inputs.T * (chances * (1 - chances))) @ inputs + np.eye(2) * self._RIDGE
            step = np.linalg.solve(curvature, inputs.T @ (chances - labels) + self._RIDGE * found)
            found -= np.clip(step, -5, 5)
        steepness = max(float(found[1]), 1e-3)
        location = -float(found[0]) / steepness
        slope = np.array([-1 / steepness, float(found[0]) / steepness**2])
        variance = float(slope @ np.linalg.inv(curvature) @ slope)
        return location, steepness, math.sqrt(max(variance, 0.0))


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, x))))
