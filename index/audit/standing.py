"""May a semantic tier serve? A pure function of counters that only grow until their epoch is over.

    serving ── evidence that more than max_error are wrong ──> not serving
       │  a third of it: ask for more similarity, two thirds: more again
       └<────────── upper bound of would-be hits under max_error ──┘

Traffic and upstreams change, so labels count for one epoch: an epoch ends with each change between
serving and not, after `WINDOW` labels of serving, and where a tier that does not serve could be
proven sooner from the beginning than by going on. Every field of the totals only grows, and a
transition is a field too: so any number of processes may add to them in any order, or decide on the
same transition twice, and all see the same standing. (`index.audit.epoch` has the transitions.)

A label tells at which steps its hit would still be one, and hits that only a step has refused are
audited at the rate of those that are served: so at each step the labels are a fair sample of its
hits, and what is decided about a step goes by its own. A tier whose hits all lie below its step
thus still learns whether to step back.

Error budgets. An opening is wrong when more hits are wrong than `max_error`; over all epochs
together that happens with probability alpha at most: the bound that begins with epoch e has
6 / (pi (e + 1))^2 of it, shared among the steps at which the tier may open. It goes on through the
following epoch, if that serves: the end of an epoch is a stopping time. A closing that was not
called for costs hits and no answers, so its alpha is each epoch's own.
"""

import math
from typing import Literal

import msgspec

from index.audit.bounds import evidence_above, evidence_below, lower, upper
from index.audit.epoch import NUM_STEPS, Epoch, Totals, present
from index.audit.label import LABELS, Counts, Label

RAISE = 0.02
"""By so much more similarity is asked for at each step of tightening."""
MIN_REPORTS = 5
"""Fewer hits that were reported as wrong close nothing."""
WINDOW = 1000
"""Labels of an epoch that serves; then the next one begins, a step less tightened."""
_LEAST_WINDOW = 500
"""Labels of an epoch that does not serve, before it may begin again."""
_SAFER, _WORSE = 4, 5
"""So many times below and above `max_error` the priors look for the error of a tier that is to be
opened, and of one that is to be closed."""

State = Literal["open", "tightened", "closed", "shadow"]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy asks of its semantic tier."""

    max_error: float
    """Greatest share of served hits that may be wrong; above 0, below 1."""
    confidence: float
    """Probability with which that is kept; above 0, below 1."""
    misses: float
    """Greatest share of wrong answers that an audit takes for right; below 1."""
    starts_open: bool

    @property
    def alpha(self) -> float:
        """Probability of a mistake."""
        return 1 - self.confidence


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a tier may do, and why."""

    epoch: int
    serves: bool
    step: int
    """How often the similarity asked for was raised."""
    state: State
    counts: Counts
    """Labels of this epoch, of hits at this step."""
    lower: float
    """More hits than this share are wrong. 0 while nothing is served: not asked then."""
    upper: float
    """No more hits than this share are wrong."""
    is_proven: bool
    """`upper` is no more than the policy's `max_error`."""
    hits: int = 0
    """Served in this epoch."""
    reported: int = 0
    """Of these, reported as wrong by users."""

    @property
    def raised(self) -> float:
        """What is asked for on top of each least similarity."""
        return self.step * RAISE


def label_field(standing: Standing, label: Label, *, step: int) -> str:
    """The field that counts a hit audited under `standing`; `step` is the last one at which it
    would still be a hit, which may be one before the standing's own."""
    return f"{standing.epoch}.{label}.{step}"


def hits_field(standing: Standing) -> str:
    """The field that counts the hits served."""
    return f"{standing.epoch}.hits"


def reported_field(epoch: int) -> str:
    """The field that counts the hits of an epoch that users have reported as wrong."""
    return f"{epoch}.reported"


def stand(totals: Totals, terms: Terms) -> Standing:
    """The standing that follows from all that was counted."""
    now = present(totals, starts_open=terms.starts_open)
    counts = _counts(totals, now)
    lowest = 0.0
    if now.serves:
        lowest = lower(counts, alpha=terms.alpha, expected=_expected(terms))
    highest = _upper(totals, now, terms)
    return Standing(
        epoch=now.number,
        serves=now.serves,
        step=now.step,
        state=_state(now),
        counts=counts,
        lower=lowest,
        upper=highest,
        is_proven=highest <= terms.max_error,
        hits=totals.get(f"{now.number}.hits", 0),
        reported=totals.get(reported_field(now.number), 0),
    )


def due(totals: Totals, terms: Terms) -> str | None:
    """The field of the transition that is called for, which is to be added; None: none is."""
    now = present(totals, starts_open=terms.starts_open)
    if now.serves:
        return _due_while_serving(totals, now, terms)
    return _due_while_closed(totals, now, terms)


def _due_while_serving(totals: Totals, now: Epoch, terms: Terms) -> str | None:
    hits = totals.get(f"{now.number}.hits", 0)
    reported = totals.get(reported_field(now.number), 0)
    if reported >= MIN_REPORTS and reported > terms.max_error * hits:
        return f"{now.number}.end.0"
    share = _against(totals, now, terms)
    if share >= 1:
        return f"{now.number}.end.0"
    wanted = _step_for(share)
    if wanted > now.step:
        return f"{now.number}.tight.{wanted}"
    if _counts(totals, now, step=0).total < WINDOW:
        return None
    return f"{now.number}.again.{_step_back(totals, now, terms)}"


def _step_back(totals: Totals, now: Epoch, terms: Terms) -> int:
    """The next epoch's step: one less, unless the hits of that step speak against it."""
    less = max(0, now.step - 1)
    return less if _step_for(_against(totals, now, terms, step=less)) <= less else now.step


def _against(totals: Totals, now: Epoch, terms: Terms, *, step: int | None = None) -> float:
    """Share of the evidence needed to close that speaks against the hits of a step."""
    counts = _counts(totals, now, step=step)
    found = evidence_above(counts, terms.max_error, expected=_expected(terms))
    return found / math.log(1 / terms.alpha)


def _step_for(share: float) -> int:
    """The step that so much of the evidence needed to close calls for."""
    return min(int(share * NUM_STEPS), NUM_STEPS - 1)


def _due_while_closed(totals: Totals, now: Epoch, terms: Terms) -> str | None:
    for step in range(NUM_STEPS):
        if _is_safe(_counts(totals, now, step=step), now, terms):
            return f"{now.number}.end.{step}"
    counts = _counts(totals, now)
    if counts.total < _LEAST_WINDOW:
        return None
    # About what a new epoch would need, if all of its labels were right.
    anew = (1 - math.log(_alpha(now.number + 1, terms))) / (terms.max_error * (1 - terms.misses))
    going_on = counts + Counts(agree=int(anew))
    return None if _is_safe(going_on, now, terms) else f"{now.number}.again.0"


def _is_safe(counts: Counts, now: Epoch, terms: Terms) -> bool:
    found = evidence_below(
        counts, terms.max_error, misses=terms.misses, expected=terms.max_error / _SAFER
    )
    return found >= -math.log(_alpha(now.number, terms) / NUM_STEPS)


def _upper(totals: Totals, now: Epoch, terms: Terms) -> float:
    counts, alpha = _counts(totals, now), _alpha(now.number, terms)
    if now.goes_on:
        counts += _counts(totals, msgspec.structs.replace(now, number=now.number - 1))
        alpha = _alpha(now.number - 1, terms)
    return upper(
        counts,
        alpha=alpha / NUM_STEPS,
        misses=terms.misses,
        expected=terms.max_error / _SAFER,
    )


def _alpha(epoch: int, terms: Terms) -> float:
    """Error budget of the bound that begins with this epoch."""
    return terms.alpha * 6 / (math.pi * (epoch + 1)) ** 2


def _counts(totals: Totals, epoch: Epoch, *, step: int | None = None) -> Counts:
    """Labels of the hits that would still be hits at `step`; by default at the epoch's own."""
    steps = range(epoch.step if step is None else step, NUM_STEPS)
    return Counts(
        **{
            label: sum(totals.get(f"{epoch.number}.{label}.{s}", 0) for s in steps)
            for label in LABELS
        }
    )


def _expected(terms: Terms) -> float:
    """Where the prior looks for the error of a tier that is to be closed."""
    return min(0.5, _WORSE * terms.max_error)


def _state(now: Epoch) -> State:
    if not now.serves:
        return "closed" if now.has_served else "shadow"
    return "tightened" if now.step else "open"
