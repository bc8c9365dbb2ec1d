"""Simulated hits through the audit: some wrong, and a judge that errs."""

import collections

import msgspec

from index.audit.label import label_of
from index.audit.standing import Standing, due, hits_field, label_field, stand


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is made of. `wrong`: share of hits, by the number of hits so far."""

    wrong: object
    error: float = 0.0
    """Of the judge, in each of its comparisons."""
    audit: float = 1.0
    """Share of served hits that is audited; those that are not served all are."""


class Run(msgspec.Struct, kw_only=True):
    """What came of it."""

    served: int = 0
    served_wrong: int = 0
    audited: int = 0
    changes: list[tuple[int, Standing]] = []
    """Number of audited hits, and the standing from then on."""

    @property
    def share(self):
        """Of the served hits that were wrong."""
        return self.served_wrong / self.served if self.served else 0.0


def label(rng, *, is_wrong, error):
    """Three comparisons, each of which the judge may turn round."""

    def says(agrees):
        return agrees != (rng.random() < error)

    return label_of(first=says(not is_wrong), second=says(not is_wrong), fresh=says(True))


def simulate(traffic, terms, rng, *, num_hits, until_change=False, look_every=10):
    """Hits one after the other, all of them hits at every step of tightening. `look_every`: right
    labels between two decisions."""
    totals, run = collections.Counter(), Run(changes=[])
    now = stand(totals, terms)
    for number in range(num_hits):
        is_wrong = rng.random() < traffic.wrong(number)
        if now.serves:
            run.served += 1
            run.served_wrong += is_wrong
            totals[hits_field(now)] += 1
            if rng.random() >= traffic.audit:
                continue
        run.audited += 1
        found = label(rng, is_wrong=is_wrong, error=traffic.error)
        totals[label_field(now, found, step=2)] += 1
        is_quiet = found == "agree" and run.audited % look_every
        if not is_quiet and (field := due(totals, terms)):
            totals[field] += 1
            before, now = now, stand(totals, terms)
            run.changes.append((run.audited, now))
            if until_change and before.serves != now.serves:
                break
    return run
