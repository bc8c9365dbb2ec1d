"""A circuit breaker: an upstream that mostly fails is left alone for a while."""

from collections import deque
from collections.abc import Callable

MIN_ATTEMPTS = 20
MIN_FAILED = 0.5
WINDOW_S = 30.0
OPEN_S = 10.0
"""How long nothing is sent before one request may find out whether the upstream is back."""
MAX_UNREACHED = 3
"""Connections that fail one after the other before a server with others beside it is left alone."""


class _Second:
    """What happened within one second of the clock."""

    __slots__ = ("attempts", "failures", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.attempts = 0
        self.failures = 0


class Breaker:
    """Closed: everything passes and is counted. Open: nothing passes until `OPEN_S` are over, then
    one probe; its success closes the breaker, its failure (or silence) waits again.

    What counts as a failure is the caller's decision; 429 should be reported as neither.
    `clock` gives seconds that never go back. Where others can take over (`has_others`), a few
    failed connections are enough: each may cost its request the whole time for connecting.
    """

    __slots__ = ("_clock", "_has_others", "_open_until", "_probing", "_seconds", "_unreached")

    def __init__(self, *, clock: Callable[[], float], has_others: bool = False) -> None:
        self._clock = clock
        self._has_others = has_others
        self._unreached = 0
        self._seconds: deque[_Second] = deque()
        self._open_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Requests are held back, but for probes."""
        return self._open_until is not None

    @property
    def passes(self) -> bool:
        """`allow` would say yes. Changes nothing."""
        return self._open_until is None or self._clock() >= self._open_until

    def allow(self) -> bool:
        """May a request be sent now? When open, a yes makes that request the probe."""
        if self._open_until is None:
            return True
        now = self._clock()
        if now < self._open_until:
            return False
        self._probing = True
        self._open_until = now + OPEN_S
        return True

    def succeeded(self) -> None:
        """An attempt was answered."""
        self._unreached = 0
        if self._open_until is None:
            self._second().attempts += 1
        elif self._probing:
            self._open_until = None
            self._probing = False
            self._seconds.clear()

    def failed(self, *, unreached: bool = False) -> None:
        """An attempt was not answered, or by the upstream's own failure. `unreached`: there was not
        even a connection."""
        now = self._clock()
        if self._open_until is not None:
            if self._probing:
                self._probing = False
                self._open_until = now + OPEN_S
            return
        second = self._second()
        second.attempts += 1
        second.failures += 1
        attempts = sum(past.attempts for past in self._seconds)
        failures = sum(past.failures for past in self._seconds)
        self._unreached = self._unreached + 1 if unreached else 0
        is_gone = self._has_others and self._unreached >= MAX_UNREACHED
        if is_gone or (attempts >= MIN_ATTEMPTS and failures >= MIN_FAILED * attempts):
            self._open_until = now + OPEN_S
            self._unreached = 0

    def _second(self) -> _Second:
        """The present second, with those that have left the window dropped."""
        number = int(self._clock())
        while self._seconds and self._seconds[0].number <= number - WINDOW_S:
            self._seconds.popleft()
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number))
        return self._seconds[-1]
