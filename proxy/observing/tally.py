"""What was counted and is not in the metrics yet."""

from collections.abc import Sequence

from proxy.call import Usage
from proxy.observing.buckets import Pending


class Saved:
    """Tokens and seconds, of one model under one policy."""

    __slots__ = ("cached_tokens", "input_tokens", "output_tokens", "seconds")

    def __init__(self) -> None:
        self.input_tokens = 0
        self.output_tokens = 0
        self.cached_tokens = 0
        self.seconds = 0.0

    def add(self, usage: Usage, seconds: float) -> None:
        """Of one answer."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_tokens += usage.cached_tokens
        self.seconds += seconds

    @property
    def usage(self) -> Usage:
        """All tokens so far."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
        )


class Times:
    """Of requests with one outcome."""

    __slots__ = ("_bounds", "first_byte", "phases")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.first_byte = Pending(bounds)
        self.phases: dict[str, Pending] = {}

    def phase(self, name: str) -> Pending:
        """By its name; there are few."""
        pending = self.phases.get(name)
        if pending is None:
            pending = self.phases[name] = Pending(self._bounds)
        return pending
