"""How much may pass a meter in a minute: the generic cell rate algorithm. Pure.

GCRA (ITU-T I.371, in its form of a virtual schedule) keeps one number: when the meter will be empty
again. It lets a minute's worth through at once, and then as fast as the limit says; a token bucket
that needs no refilling.
"""

import msgspec

WINDOW_S = 60.0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a meter says of a limit."""

    limit: int
    """Units a minute."""
    remaining: int
    """Units that could pass now."""
    reset_s: float
    """Until the meter is empty."""
    retry_after_s: float
    """Until what was asked for could pass; 0 where it passed."""
    empty_at: float
    """The meter's new state."""

    @property
    def passed(self) -> bool:
        """What was asked for passed, and is on the meter."""
        return not self.retry_after_s


def take(units: int, *, limit: int, empty_at: float, now: float) -> Reading:
    """Let `units` through, if they fit. More than a whole limit fits when the meter is empty."""
    unit_s = WINDOW_S / limit
    held_s = max(empty_at - now, 0.0)
    wait_s = held_s + min(units, limit) * unit_s - WINDOW_S
    if wait_s > 1e-9:  # what rounding leaves is no reason to refuse
        return _reading(limit, held_s, now=now, retry_after_s=wait_s)
    return _reading(limit, held_s + units * unit_s, now=now)


def correct(units: int, *, limit: int, empty_at: float, now: float) -> float:
    """The meter's state after `units` more (or fewer, if negative) have turned out to have passed.
    It can hold more than a minute's worth: what comes next waits for it."""
    return max(max(empty_at, now) + units * WINDOW_S / limit, now)


def _reading(limit: int, held_s: float, *, now: float, retry_after_s: float = 0.0) -> Reading:
    free_s = max(WINDOW_S - held_s, 0.0)
    return Reading(
        limit=limit,
        remaining=int(free_s / WINDOW_S * limit + 1e-9),
        reset_s=held_s,
        retry_after_s=retry_after_s,
        empty_at=now + held_s,
    )
