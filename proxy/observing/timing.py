"""Where the time of one request goes: filled on its way, read when it has ended.

Times are of `time.perf_counter`, in seconds.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from proxy.observing.traceparent import Trace

PhaseName = Literal["receive", "lookup", "embed"]


class Phase(msgspec.Struct, frozen=True):
    """A stretch of a request. `embed` is the search by meaning, embedding and all."""

    name: PhaseName
    began_s: float
    ended_s: float


class Leg(msgspec.Struct, kw_only=True, eq=False):
    """One attempt at a server of an upstream. Filled on its way: not frozen."""

    upstream: str
    server: str
    path: str
    """Below the upstream's base URL."""
    model: str
    """Empty where the body is passed through unread."""
    began_s: float
    span_id: int = 0
    """Of its span; 0 where nothing is traced."""
    result: str = ""
    """A word of few, as the metrics count attempts."""
    status: int | None = None
    """None: there was no response."""
    answered_s: float | None = None
    """When the answer was known to be good: a stream's first event, the whole of another; or the
    attempt had failed."""
    ended_s: float | None = None
    """When all of it had come, or nobody waited for it any more."""


LegEnded = Callable[["Timing", Leg], None]


_PART = contextlib.nullcontext()


class Timing:
    """The times of one request. What is made in its name without it, behind its reader's back or to
    its end when the reader has left, is timed too."""

    __slots__ = (
        "_running", "_running_since_s", "_when_leg_ends", "began_s", "legs", "model", "phases",
        "trace",
    )  # fmt: skip

    def __init__(
        self, *, trace: Trace | None = None, when_leg_ends: LegEnded | None = None
    ) -> None:
        """`trace`: None where the request is not traced."""
        self.began_s = time.perf_counter()
        self.trace = trace
        self.phases: list[Phase] = []
        self.legs: Sequence[Leg] = ()
        self.model = ""
        self._running: PhaseName | None = None
        self._running_since_s = 0.0
        self._when_leg_ends = when_leg_ends

    def phase(self, name: PhaseName) -> contextlib.AbstractContextManager[None]:
        """Times a block, unless it lies within another one, of which it then is a part."""
        if self._running is not None:
            return _PART
        self._running, self._running_since_s = name, time.perf_counter()
        return self

    def __enter__(self) -> None:
        """Of `phase`."""

    def __exit__(self, *_: object) -> None:
        """Of `phase`."""
        if self._running is not None:
            self.phases.append(Phase(self._running, self._running_since_s, time.perf_counter()))
            self._running = None

    def received(self, model: str) -> None:
        """The request was read and decided; its upstreams are asked for `model`."""
        self.model = model
        self.phases.append(Phase("receive", self.began_s, time.perf_counter()))

    def leg(self, upstream: str, server: str, *, path: str) -> Leg:
        """An attempt begins."""
        trace = self.trace
        leg = Leg(
            upstream=upstream,
            server=server,
            path=path,
            model=self.model,
            began_s=time.perf_counter(),
            span_id=0 if trace is None else trace.new_span_id(),
        )
        self.legs = (*self.legs, leg)
        return leg

    def answered(self, leg: Leg, result: str, *, status: int | None) -> None:
        """How an attempt went; without a status it has ended with that."""
        leg.result, leg.status, leg.answered_s = result, status, time.perf_counter()
        if status is None:
            self.ended(leg)

    def ended(self, leg: Leg) -> None:
        """All of its answer has come, or is not waited for any more."""
        if leg.ended_s is None:
            leg.ended_s = time.perf_counter()
            if self._when_leg_ends is not None:
                self._when_leg_ends(self, leg)

    def spent_s(self) -> dict[str, float]:
        """Seconds by phase, in their order; `upstream` from the first attempt until the last was
        answered. Only what was gone through."""
        spent: dict[str, float] = {}
        for one in self.phases:
            spent[one.name] = spent.get(one.name, 0.0) + one.ended_s - one.began_s
        if (upstream_s := self.upstream_s()) is not None:
            spent["upstream"] = upstream_s
        return spent

    def spent_ms(self) -> dict[str, float]:
        """The same in milliseconds, to be read."""
        return {name: round(seconds * 1000, 3) for name, seconds in self.spent_s().items()}

    def beside(self) -> "Timing":
        """For what is made behind the answer's back: of the same trace, but no part of this
        request's time."""
        beside = Timing(trace=self.trace, when_leg_ends=self._when_leg_ends)
        beside.model = self.model
        return beside

    def upstream_s(self) -> float | None:
        """See `spent_s`; None where no upstream answered."""
        answered = [leg.answered_s for leg in self.legs if leg.answered_s is not None]
        return max(answered) - self.legs[0].began_s if answered else None
