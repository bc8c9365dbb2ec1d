"""What was counted and is not in the metrics yet."""

from collections import defaultdict

from proxy.call import Usage
from proxy.observing.saving import Saving
from proxy.observing.timing import Timing


class Saved:
    """Tokens and seconds, of one model under one policy."""

    __slots__ = ("cached_tokens", "input_tokens", "output_tokens", "seconds")

    def __init__(self) -> None:
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.seconds = 0.0

    def add(self, saving: Saving, *, first_s: float) -> None:
        """`first_s`: when the answer began that came instead."""
        self.input_tokens += saving.input_tokens
        self.output_tokens += saving.output_tokens
        self.cached_tokens += saving.cached_tokens
        if saving.made_in_s > first_s:
            self.seconds += saving.made_in_s - first_s

    @property
    def usage(self) -> Usage:
        """All tokens so far."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
        )


class Times:
    """Of requests with one outcome, in seconds. They are few: those since the last flush."""

    __slots__ = ("first_byte", "phases")

    def __init__(self) -> None:
        self.first_byte: list[float] = []
        self.phases: defaultdict[str, list[float]] = defaultdict(list)

    def note(self, timing: Timing, *, total_s: float) -> None:
        """One request has ended."""
        phases = self.phases
        for one in timing.phases:
            phases[one.name].append(one.ended_s - one.began_s)
        if timing.legs and (upstream_s := timing.upstream_s()) is not None:
            phases["upstream"].append(upstream_s)
        phases["total"].append(total_s)
