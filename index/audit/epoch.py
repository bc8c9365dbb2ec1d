"""The epochs of a tier, from the transitions that were counted. Pure.

    0 ── 0.again.0 ──> 1 ── 1.end.0 ──> 2 ── …        the walk to the present
                                        │ 2.base.…    what the walk may begin with as well

What was counted in an epoch before the last two is of no use any more, and neither are the
transitions that led there, once the totals say where the walk begins: it is forgotten (`folded`),
or the totals of a tier that has lived long would have thousands of fields.
"""

from collections.abc import Iterator, Mapping

import msgspec

NUM_STEPS = 3
"""Steps of tightening; the first one asks for nothing more."""

Totals = Mapping[str, int]


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """How an epoch begins."""

    number: int
    serves: bool
    step: int
    has_served: bool
    """In this epoch or before it."""
    goes_on: bool = False
    """The bound of the epoch before goes on here."""


def present(totals: Totals, *, starts_open: bool) -> Epoch:
    """The epoch that has not ended yet, at the step that it has come to."""
    *_, now = _walk(totals, starts_open=starts_open)
    return now if not now.serves else msgspec.structs.replace(now, step=_tightened(totals, now))


def folded(totals: Totals, *, starts_open: bool) -> dict[str, int]:
    """What has to be added to the totals so that they say the same in as few fields as they can;
    empty where they do. It may be added any number of times, also by processes that have not heard
    of all: what they add of epochs that are over for others is folded with the next one."""
    kept = [*_walk(totals, starts_open=starts_open)][-2:][0]
    over = {field: -count for field, count in totals.items() if _is_before(field, kept.number)}
    base = _base_field(kept)
    return over if not kept.number or base in totals else {**over, base: 1}


def _walk(totals: Totals, *, starts_open: bool) -> Iterator[Epoch]:
    now: Epoch | None = _first(totals, starts_open=starts_open)
    while now is not None:
        yield now
        now = _following(totals, now)


def _first(totals: Totals, *, starts_open: bool) -> Epoch:
    bases = [_epoch_of(field) for field in totals if ".base." in field]
    if not bases:
        return Epoch(number=0, serves=starts_open, step=0, has_served=starts_open)
    # Where two processes did not see the same transitions, the stricter one is right.
    return max(bases, key=lambda one: (one.number, not one.serves, one.step, one.goes_on))


def _following(totals: Totals, now: Epoch) -> Epoch | None:
    ends = [step for step in range(NUM_STEPS) if totals.get(f"{now.number}.end.{step}")]
    number = now.number + 1
    if ends and now.serves:
        return Epoch(number=number, serves=False, step=0, has_served=True)
    if ends:
        return Epoch(number=number, serves=True, step=max(ends), has_served=True, goes_on=True)
    agains = [step for step in range(NUM_STEPS) if totals.get(f"{now.number}.again.{step}")]
    if not agains:
        return None
    return msgspec.structs.replace(now, number=number, step=max(agains), goes_on=now.serves)


def _tightened(totals: Totals, now: Epoch) -> int:
    tight = (step for step in range(NUM_STEPS) if totals.get(f"{now.number}.tight.{step}"))
    return max(tight, default=now.step)


def _is_before(field: str, number: int) -> bool:
    """A field of an epoch; others (`pairs`, `told.7`) are of all epochs."""
    epoch = field.partition(".")[0]
    return epoch.isdecimal() and int(epoch) < number


def _base_field(epoch: Epoch) -> str:
    flags = (epoch.serves, epoch.has_served, epoch.goes_on)
    return f"{epoch.number}.base.{epoch.step}.{''.join(str(int(flag)) for flag in flags)}"


def _epoch_of(field: str) -> Epoch:
    number, _, step, flags = field.split(".")
    serves, has_served, goes_on = (flag == "1" for flag in flags)
    return Epoch(
        number=int(number), serves=serves, step=int(step), has_served=has_served, goes_on=goes_on
    )
