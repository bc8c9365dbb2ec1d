"""Stop strings, found across the borders of tokens, with nothing of them let out before."""

from collections.abc import Sequence

import msgspec


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Text that may be shown now, and whether a stop string ended the answer."""

    text: str
    stopped: bool = False


class StopMatcher:
    """For one answer. Text that could yet grow into a stop string is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        """No stop string is empty."""
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> Cut:
        """Takes the next piece. After `stopped` the matcher is done."""
        self._held += text
        starts = [at for at in map(self._held.find, self._stops) if at >= 0]
        if starts:
            return Cut(text=self._held[: min(starts)], stopped=True)
        keep = max((overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return Cut(text=shown)

    def close(self) -> str:
        """What was held back, when the answer ends for another reason."""
        held, self._held = self._held, ""
        return held


def overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a true beginning of `stop`."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
