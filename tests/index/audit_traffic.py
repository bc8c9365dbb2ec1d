"""Simulated hits through the audit: some wrong, and a judge that errs."""

import collections

import msgspec

from index.audit.epoch import folded
from index.audit.label import label_of
from index.audit.standing import RAISE, Standing, due, hits_field, label_field, stand


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is made of."""

    wrong: object
    """Probability that a would-be hit is wrong, by the number of those so far and by how much
    similarity it has beyond what the profile asks for."""
    beyond: object = lambda _: 1.0
    """That similarity, drawn with a random generator."""
    error: float = 0.0
    """Of the judge, in each of its comparisons."""
    audit: float = 1.0
    """Share of what is audited of served hits, and of those that only a tightening refuses; those
    that are not served while a tier is closed all are."""


class Told(msgspec.Struct, frozen=True, gc=False):
    """What became of a would-be hit."""

    state: str
    served: bool
    is_wrong: bool


class Run(msgspec.Struct, kw_only=True):
    """What came of it."""

    told: list[Told] = []
    audited: int = 0
    changes: list[tuple[int, Standing]] = []
    """Number of audited hits, and the standing from then on."""

    @property
    def served(self):
        """Number of hits."""
        return sum(one.served for one in self.told)

    @property
    def share(self):
        """Of the served hits that were wrong."""
        wrong = [one.is_wrong for one in self.told if one.served]
        return sum(wrong) / len(wrong) if wrong else 0.0


def label(rng, *, is_wrong, error):
    """Three comparisons, each of which the judge may turn round."""

    def says(agrees):
        return agrees != (rng.random() < error)

    return label_of(first=says(not is_wrong), second=says(not is_wrong), fresh=says(True))


def simulate(traffic, terms, rng, *, num_hits, until_change=False, look_every=10):
    """Would-be hits one after the other. `look_every`: right labels between two decisions."""
    totals, run = collections.Counter(), Run(told=[], changes=[])
    now = stand(totals, terms)
    for number in range(num_hits):
        beyond = traffic.beyond(rng)
        step = min(int(beyond / RAISE), 2)
        is_wrong = rng.random() < traffic.wrong(number, beyond)
        served = now.serves and step >= now.step
        run.told.append(Told(now.state, served, is_wrong))
        if served:
            totals[hits_field(now)] += 1
        if now.serves and rng.random() >= traffic.audit:
            continue
        run.audited += 1
        found = label(rng, is_wrong=is_wrong, error=traffic.error)
        totals[label_field(now, found, step=step)] += 1
        is_quiet = found == "agree" and run.audited % look_every
        if not is_quiet and (field := due(totals, terms)):
            totals[field] += 1
            totals.update(folded(totals, starts_open=terms.starts_open))
            totals = +totals
            before, now = now, stand(totals, terms)
            run.changes.append((run.audited, now))
            if until_change and before.serves != now.serves:
                break
    return run
