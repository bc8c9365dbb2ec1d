"""The frames of one stream, as far as someone may still want them."""

from bisect import bisect_right
from collections.abc import Sequence

from proxy.answer.grammar import Frame


class Tape:
    """Frames by their number in the stream, which stays when those before them are dropped."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._ends: list[int] = []
        """Bytes of all frames up to each of these, dropped ones included."""
        self._num_dropped = 0
        self._dropped_bytes = 0
        self.end_bytes = 0
        """Bytes of all frames so far, dropped ones included."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the frames that are still there."""
        return self.end_bytes - self._dropped_bytes

    @property
    def end(self) -> int:
        """Number of the frame that comes next."""
        return self._num_dropped + len(self._frames)

    def append(self, frames: Sequence[Frame]) -> None:
        """More of the stream has come."""
        for frame in frames:
            self.end_bytes += len(frame.data)
            self._ends.append(self.end_bytes)
        self._frames.extend(frames)

    def bytes_before(self, number: int) -> int:
        """Bytes of all frames before `number`, which must not be dropped yet."""
        index = number - self._num_dropped
        return self._ends[index - 1] if index else self._dropped_bytes

    def read(self, number: int, *, max_bytes: int) -> list[Frame]:
        """Frames from `number` on: at least one if there is one, then up to `max_bytes` of them."""
        start = number - self._num_dropped
        assert start >= 0
        read_bytes = self.bytes_before(number)
        if self.end_bytes - read_bytes <= max_bytes:
            return self._frames[start:]
        stop = bisect_right(self._ends, read_bytes + max_bytes, lo=start)
        return self._frames[start : max(stop, start + 1)]

    def drop_before(self, number: int) -> None:
        """Nobody will read what comes before `number`. Done once it frees half of what is held, so
        that a frame costs the same however many are held."""
        count = number - self._num_dropped
        if 2 * count < len(self._frames) or count <= 0:
            return
        self._dropped_bytes = self._ends[count - 1]
        del self._frames[:count]
        del self._ends[:count]
        self._num_dropped += count
