"""Histograms that are filled by the handful: to count one observation in the files that several
workers share takes longer than all the rest of an exact hit's bookkeeping."""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client import Histogram


class Pending:
    """Observations that no histogram knows of yet."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper ones, in order; above the last there is one bucket more."""
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def pour(self, histogram: Histogram) -> None:
        """Into a histogram (one with its labels) of the same bounds; nothing is pending after."""
        # The library has no public way to add to several buckets at once; a test holds these names
        # against it.
        for bucket, count in zip(histogram._buckets, self.counts, strict=True):
            if count:
                bucket.inc(count)
        histogram._sum.inc(self.total)
        self.counts = [0] * len(self.counts)
        self.total = 0.0
